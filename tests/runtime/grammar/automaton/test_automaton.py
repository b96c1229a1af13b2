from __future__ import annotations

import re

import pytest
from grammar_patterns import looking, regular, texts
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.automaton import Automaton, automaton
from palmette.runtime.grammar.automaton.dfa import TooLarge
from palmette.runtime.grammar.protocol import Limits
from palmette.runtime.grammar.regex.parser import parse


def compiled(pattern: str) -> Automaton:
    return automaton(parse(pattern), Limits())


def accepts(built: Automaton, text: str) -> bool:
    end = built.walk(built.start, text.encode())
    return end is not None and built.final(end)


@settings(max_examples=200, deadline=None)
@given(regular, st.lists(texts, max_size=8))
def test_a_pattern_matches_what_re_matches(pattern: str, samples: list[str]) -> None:
    built = compiled(pattern)
    for text in samples:
        assert accepts(built, text) == bool(re.fullmatch(pattern, text)), text


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(regular, st.data())
def test_every_text_of_the_language_matches(pattern: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(pattern, fullmatch=True))
    assume(max(text, default="") < "\ud800" or max(text) > "\udfff")
    assert accepts(compiled(pattern), text)


@settings(max_examples=200, deadline=None)
@given(looking, st.lists(texts, max_size=8))
def test_looking_ahead_is_exact(pattern: str, samples: list[str]) -> None:
    built = compiled(pattern)
    for text in samples:
        assert accepts(built, text) == bool(re.fullmatch(pattern, text)), text


CONSTRUCTS = [
    r"(?m)a$\nb", r"(?m)^a$", r"(?x) a  b # c", "(?x: a b) c", r"\101\x42\u00e9", r"\N{GREEK SMALL LETTER ALPHA}+",
    "a{,2}", "[]a]+", "[^]a]", r"[a\]b]+", r"[\b]", "(?P<x>a|b)+", "(?i)(?s).A", "(?s-i:.)a", "(?i:a(?-i:b))", "a{b",
    "a{2,x}", "{a", r"\0", r"[\0-\x1f]", "(?#no)a", "a(?=b|$)b?", "^$", "^a|^b", "(^a|b)c", r"\Aa\Z", "a|", "(|a)b",
    "(?:a|b|)(?!c).?", r"[^\S ]", r"(?a)\w\d\s", "[a-]", "[-a]", r"[\w.-]+", "(?u)é", "a??b*?", "a$\n?", "(a$)?",
    "(?!a)", "(?=a)a|(?!a)b",
]  # fmt: skip
SAMPLES = [
    "", "a", "b", "ab", "a\nb", "AB", "ABé", "α", "aa", "aaa", "]", "a]", "\b", "\n", "\nA", "\na", "aB", "Ab", "a{b",
    "a{2,x}", "{a", "\0", "\x1f", "ac", "bc", "abc", "c", "a1 ", "é1 ", "-", "a.b-c", "é", "a\n", "a\n\n", " ", "\t",
]  # fmt: skip


@pytest.mark.parametrize("pattern", CONSTRUCTS)
def test_each_construct_means_what_it_means_to_re(pattern: str) -> None:
    built = compiled(pattern)
    for text in SAMPLES:
        assert accepts(built, text) == bool(re.fullmatch(pattern, text)), text


@pytest.mark.parametrize("pattern", ["(a(?=b).)*", "(?:a$|b)*c", "(x(?!y))+"])
def test_looking_ahead_inside_a_repeat_is_refused(pattern: str) -> None:
    with pytest.raises(GrammarError, match=r"inside a repeat.*position"):
        compiled(pattern)


@settings(max_examples=60, deadline=None)
@given(regular, texts)
def test_no_state_is_a_dead_end(pattern: str, text: str) -> None:
    built = compiled(pattern)
    at = built.start
    for byte in text.encode():
        after = built.walk(at, bytes([byte]))
        if after is None:
            break
        at = after
    for _ in range(2000):  # any way that is taken ends in a match
        if built.final(at):
            return
        run = built.run(at)
        at = run.end
        if not run.data:
            # The way that gets nearest to an end: depth first would run in loops.
            ring, seen = [at], {at}
            while ring and not any(map(built.final, ring)):
                ring = [
                    after
                    for state in ring
                    for byte in built.ways(state)
                    if (after := built.walk(state, bytes([byte]))) is not None and after not in seen
                    and not seen.add(after)  # type: ignore[func-returns-value]
                ]  # fmt: skip
            assert ring
            return
    raise AssertionError("a run without end")


@pytest.mark.parametrize(
    ("pattern", "states"),
    [("abc|xbc", 4), ("(a|b)*c", 2), ("a{1,1000}", 1001), ("(aa)*|(aaaa)*", 2), ("a*|b*", 3), ("[^x]{3}|abc", 4)],
)
def test_it_is_minimal(pattern: str, states: int) -> None:
    assert compiled(pattern).states == states


def test_runs_are_bytes_without_alternative() -> None:
    built = compiled('\\{"name": "(yes|no)"\\}')
    run = built.run(built.start)
    assert run.data == b'{"name": "'
    after = built.walk(run.end, b"y")
    assert after is not None
    assert built.run(after).data == b'es"}'
    assert built.run(built.run(after).end).data == b""


def test_a_run_may_end_inside_a_character() -> None:
    built = compiled("x[é-ê]")
    assert built.run(built.start).data == b"x\xc3"


def test_a_run_stops_where_the_text_may_end() -> None:
    built = compiled("ab(cd)?")
    assert built.run(built.start).data == b"ab"


def test_a_pattern_without_texts_is_empty() -> None:
    assert compiled("a(?=b)$").empty
    assert compiled("b^a").empty


def test_bytes_that_are_no_utf8_are_never_read() -> None:
    built = compiled("(?s).")
    for wrong in (b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"):
        assert built.walk(built.start, wrong) is None, wrong
    for right in ("\0", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"):
        assert accepts(built, right)


@pytest.mark.parametrize("pattern", [".*a.{20}", "(a{1,200}){1,200}", "((a{1,99}){1,99}){1,99}", "[ab]*a[ab]{18}c"])
def test_what_grows_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(TooLarge, match="automaton"):
        automaton(parse(pattern), Limits(states=5_000, seconds=1))


def test_time_is_bounded() -> None:
    with pytest.raises(TooLarge, match="seconds"):
        automaton(parse(r"(\w{1,300}a){1,60}"), Limits(seconds=0.05, states=10**9))
