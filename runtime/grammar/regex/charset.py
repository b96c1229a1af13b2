"""Sets of characters as ranges of code points: the classes of Python's `re`, general categories, and case variants.

Called by the parser and the automaton. What `\\d`, `\\w`, `\\s` hold is asked of `re` itself, so that both agree by
construction. Surrogates are in no set: no text holds them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
_LETTERED = 0x40000

CharSet = tuple[tuple[int, int], ...]
"""Ranges (first, last), both included, ascending, apart from each other, without surrogates."""

NOTHING: CharSet = ()
ANYTHING: CharSet = ((0, 0xD7FF), (0xE000, LAST))


def charset(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """The union of `ranges`, which may overlap and hold surrogates."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    low, high = SURROGATES
    if not any(first <= high and last >= low for first, last in merged):
        return tuple(merged)
    parts = [
        part
        for first, last in merged
        for part in ((first, min(last, low - 1)), (max(first, high + 1), last))
        if part[0] <= part[1]
    ]
    return tuple(parts)


def single(character: str) -> CharSet:
    return charset([(ord(character), ord(character))])


def complement(chars: CharSet) -> CharSet:
    edges = [-1, *(edge for part in chars for edge in part), LAST + 1]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return charset((before + 1, after - 1) for before, after in gaps if before + 1 <= after - 1)


@lru_cache(maxsize=64)
def escape_class(letter: str, ascii_only: bool) -> CharSet:
    """What `\\d`, `\\w`, `\\s` and their capitals match."""
    if letter.isupper():
        return complement(escape_class(letter.lower(), ascii_only))
    found = re.finditer(f"\\{letter}+", _lettered(), re.ASCII if ascii_only else 0)
    return charset((match.start(), match.end() - 1) for match in found)


def category(name: str) -> CharSet | None:
    """The characters of a general category (`L`, `Lu`, `Nd` …); None for a name that is none."""
    codes = _categories()
    wanted = [code for code in codes if code.startswith(name)] if 1 <= len(name) <= 2 else []
    return charset(part for code in wanted for part in codes[code]) if wanted else None


def ignoring_case(chars: CharSet) -> CharSet:
    """What a set of `re` matches under IGNORECASE: characters whose lower case, or a relative of it, is one of its."""
    lower, relatives, uppers = _case_tables()
    folded = list(chars)
    for first, last in chars:
        inside = range(first, last + 1) if last - first < len(lower) else None
        cased = (code for code in inside if code in lower) if inside else (c for c in lower if first <= c <= last)
        folded += [(lower[code], lower[code]) for code in cased]
    whole = charset(folded)
    folded += [(code, code) for base in relatives if _holds(whole, base) for code in relatives[base]]
    whole = charset(folded)
    kept = [part for first, last in whole for part in _without(first, last, lower)]
    return charset(kept + [(code, code) for base, codes in uppers.items() if _holds(whole, base) for code in codes])


def _holds(chars: CharSet, code: int) -> bool:
    low, high = 0, len(chars)
    while low < high:
        middle = (low + high) // 2
        if chars[middle][1] < code:
            low = middle + 1
        else:
            high = middle
    return low < len(chars) and chars[low][0] <= code


def _without(first: int, last: int, lower: dict[int, int]) -> Iterable[tuple[int, int]]:
    """The range without characters that have another lower case: those are matched by it alone."""
    holes = range(first, last + 1) if last - first < len(lower) else sorted(lower)
    start = first
    for code in holes:
        if code in lower and first <= code <= last:
            if start < code:
                yield start, code - 1
            start = code + 1
    if start <= last:
        yield start, last


@lru_cache(maxsize=1)
def _case_tables() -> tuple[dict[int, int], dict[int, list[int]], dict[int, list[int]]]:
    """Capital → its lower case; lower case → others with the same capital; lower case → its capitals."""
    text = _lettered()
    # Only U+0130's lower case has two characters; `re` takes the first.
    lowered = np.frombuffer(text.replace("\u0130", "i").lower().encode("utf-32-le", "surrogatepass"), dtype="<u4")
    changed = np.flatnonzero(lowered != np.arange(_LETTERED, dtype=np.uint32)).tolist()
    lower = {code: int(lowered[code]) for code in changed}
    uppers: dict[int, list[int]] = {}
    for code, base in lower.items():
        uppers.setdefault(base, []).append(code)
    same: dict[str, list[int]] = {}
    for start in range(0, _LETTERED, 256):
        part = text[start : start + 256]
        if part.upper() == part:
            continue
        for code, character in enumerate(part, start):
            if code not in lower and (capital := character.upper()) != character:
                same.setdefault(capital, []).append(code)
    relatives = {code: codes for codes in same.values() if len(codes) > 1 for code in codes}
    return lower, relatives, uppers


@lru_cache(maxsize=1)
def _categories() -> dict[str, list[tuple[int, int]]]:
    codes: dict[str, list[tuple[int, int]]] = {}
    start, current = 0, "Cc"
    for code, name in enumerate(map(unicodedata.category, map(chr, range(LAST + 1)))):
        if name != current:
            codes.setdefault(current, []).append((start, code - 1))
            start, current = code, name
    codes.setdefault(current, []).append((start, LAST))
    return codes


@lru_cache(maxsize=1)
def _lettered() -> str:
    """Every character of the planes that hold letters, digits or blanks (a test looks at the others)."""
    return np.arange(_LETTERED, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
