"""Stop patterns: the first end, the leftmost start, and what is held back, for every way the text is cut."""

from __future__ import annotations

import re
import time

import pytest
from grammar_patterns import regular, texts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import build_stop
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.regex.stop_pattern import StopPattern, StopWatch


def compiled(pattern: str) -> StopPattern:
    return build_stop(GrammarSource(kind="stop_regex", text=pattern), Limits())


def watch(pattern: str) -> StopWatch:
    return StopWatch(compiled(pattern))


def first_match(pattern: str, text: str) -> tuple[int, int] | None:
    """By `re`: the leftmost start of the matches that end first. In characters."""
    for end in range(len(text) + 1):
        for start in range(end):
            if re.compile(f"(?:{pattern})").fullmatch(text, start, end):
                return start, end
    return None


@settings(max_examples=150, deadline=None)
@given(regular, texts, st.data())
def test_it_stops_where_a_match_first_ends(pattern: str, text: str, data: st.DataObject) -> None:
    assume(not re.fullmatch(pattern, ""))
    looking = watch(pattern)
    raw, fed, found, held_from = text.encode(), bytearray(), None, 0
    at = 0
    while at < len(raw):
        length = data.draw(st.integers(1, 5))
        before = len(fed)
        fed += raw[at : at + length]
        at += length
        found = looking.feed(fed, before)
        if found is not None:
            break
        begin = len(fed) - looking.held(fed)
        assert begin >= held_from, "what was handed out stays"
        held_from = begin
    expected = first_match(pattern, text)
    if expected is None:
        assert found is None
        return
    start, end = (len(text[:place].encode()) for place in expected)
    assert found == (start, end)
    assert held_from <= start, "no part of a match was handed out"


def test_what_is_held() -> None:
    looking = watch(r"END\d+!")
    text = bytearray()

    def feed(more: str) -> int:
        before = len(text)
        text.extend(more.encode())
        assert looking.feed(text, before) is None
        return looking.held(text)

    assert feed("hello") == 0
    assert feed(" EN") == 2
    assert feed("D") == 3
    assert feed("x") == 0
    assert feed("END12") == 5
    assert feed("E") == 1
    before = len(text)
    text.extend(b"ND7!")
    assert looking.feed(text, before) == (len(text) - 5, len(text))


def test_bytes_that_are_no_text_end_what_had_begun() -> None:
    looking = watch("a.c")
    text = bytearray(b"xa\xff")
    assert looking.feed(text, 0) is None
    before = len(text)
    text += b"cabc"
    assert looking.feed(text, before) == (before + 1, before + 4)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a*", "matches the empty text"),
        ("(a", "position"),
        ("^a", "anchor or look-ahead"),
        ("a$", "anchor or look-ahead"),
        ("a(?=b)", "anchor or look-ahead"),
        (r"\bword", "position 0"),
        ("[^\\s\\S]", "No text matches"),
        ("(a|b)*a(a|b){30}", "automaton"),
    ],
)
def test_what_can_not_be_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(GrammarError, match=said) as caught:
        compiled(pattern)
    assert caught.value.param == "stop_regex"


def test_no_pattern_stalls() -> None:
    looking = watch("(a+)+b")
    text = bytearray()
    started = time.process_time()
    for _ in range(500):
        before = len(text)
        text += b"aaaaaaaa"
        assert looking.feed(text, before) is None
        looking.held(text)
    assert time.process_time() - started < 5
