from __future__ import annotations

import re
import unicodedata

import pytest

from palmette.runtime.grammar.regex.charset import (
    ANYTHING,
    LAST,
    NOTHING,
    CharSet,
    category,
    charset,
    complement,
    escape_class,
    ignoring_case,
    single,
)
from palmette.runtime.grammar.regex.parser import parse
from palmette.runtime.grammar.regex.syntax import Chars

EVERY = "".join(map(chr, range(LAST + 1)))


def members(chars: CharSet) -> set[int]:
    return {code for first, last in chars for code in range(first, last + 1)}


def judged(pattern: str, flags: int = 0) -> CharSet:
    """What `re` says of every character there is."""
    return charset((match.start(), match.end() - 1) for match in re.finditer(f"(?:{pattern})+", EVERY, flags))


@pytest.mark.parametrize("letter", "dDwWsS")
@pytest.mark.parametrize("ascii_only", [False, True])
def test_escapes_hold_what_re_matches(letter: str, ascii_only: bool) -> None:
    expected = judged(f"\\{letter}", re.ASCII if ascii_only else 0)
    assert escape_class(letter, ascii_only) == expected


@pytest.mark.parametrize(
    "text", ["a", "k", "K", "\u212a", "s", "ſ", "ß", "ẞ", "i", "İ", "ı", "I", "µ", "Σ", "ς", "ﬆ", "ΐ", "ͅ", "ǅ", "1"]
)
def test_a_character_without_case(text: str) -> None:
    assert ignoring_case(single(text)) == judged(re.escape(text), re.IGNORECASE)


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z]",
        "[A-Z]",
        "[à-ÿ]",
        "[Α-ω]",
        r"[\W]",
        r"\w",
        r"[\wß]",
        r"[^\Wk]",
        r"[^a\d]",
        "[K-ſ]",
        "[Ā-\u2fff]",
        "[İ-ſ]",
    ],
)
def test_a_range_without_case(pattern: str) -> None:
    node = parse("(?i)" + pattern)
    assert isinstance(node, Chars)
    assert node.chars == judged(pattern, re.IGNORECASE)


def test_categories() -> None:
    lu, letters = category("Lu"), category("L")
    assert lu is not None
    assert letters is not None
    assert members(lu) == {code for code, c in enumerate(EVERY) if unicodedata.category(c) == "Lu"}
    assert members(letters) == {code for code, c in enumerate(EVERY) if unicodedata.category(c)[0] == "L"}
    assert category("Greek") is None
    assert category("X") is None


def test_sets_are_apart_and_without_surrogates() -> None:
    assert charset([(5, 9), (1, 2), (3, 4), (7, 12)]) == ((1, 12),)
    assert charset([(0, LAST)]) == ANYTHING == complement(NOTHING)
    assert complement(ANYTHING) == NOTHING
    assert charset([(0xD800, 0xD900)]) == NOTHING
    assert complement(complement(single("é"))) == single("é")
