"""Sets of characters as ranges of code points, and how such a set is written inside a JSON string.

Knows nothing of patterns or schemas; ecma.py builds sets, json_strings.py writes them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)

Range = tuple[int, int]
CharSet = tuple[Range, ...]
"""Inclusive ranges, ascending, apart, without surrogates (UTF-8 has none)."""


def charset(ranges: Iterable[Range]) -> CharSet:
    """The union of `ranges`."""
    merged: list[Range] = []
    for low, high in sorted(part for given in ranges for part in _without_surrogates(given)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _without_surrogates(given: Range) -> Iterable[Range]:
    low, high = given
    first, last = SURROGATES
    if high < first or low > last:
        return [given]
    return [part for part in ((low, first - 1), (last + 1, high)) if part[0] <= part[1]]


def single(character: str) -> CharSet:
    return charset([(ord(character), ord(character))])


def union(*sets: CharSet) -> CharSet:
    return charset(part for each in sets for part in each)


def complement(of: CharSet) -> CharSet:
    gaps: list[Range] = []
    start = 0
    for low, high in of:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return charset(gaps)


def intersection(one: CharSet, other: CharSet) -> CharSet:
    return complement(union(complement(one), complement(other)))


DIGITS = charset([(0x30, 0x39)])
WORD = charset([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
LINE_ENDS = charset([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)])
SPACE = charset(
    (ord(first), ord(last))
    for first, last in (
        "\t\r",
        "  ",
        "\xa0\xa0",
        "\u1680\u1680",
        "\u2000\u200a",
        "\u2028\u2029",
        "\u202f\u202f",
        "\u205f\u205f",
        "\u3000\u3000",
        "\ufeff\ufeff",
    )
)
ANY: CharSet = complement(())


@lru_cache(maxsize=64)
def category(name: str) -> CharSet | None:
    """The characters of a general category ("L", "Lu", "N" …), or None if there is no such category."""
    if not (name and name[0] in "LMNPSZC" and len(name) <= 2):
        return None
    ranges: list[Range] = []
    for code in range(LAST + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return charset(ranges) or None
