"""Our automata against those of interegular, which shares no code with them: the same languages, state by state."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interegular import parse_pattern

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.automaton import Automaton, automaton
from palmette.runtime.grammar.protocol import Limits
from palmette.runtime.grammar.regex.parser import parse
from palmette.runtime.grammar.regex.second_opinion import difference, second_opinion

# Both read these alike. Escapes of classes are interegular's in ASCII only, so they stand with (?a) on our side.
ATOMS = ["a", "b", "ab", "-", "[ab]", "[^a]", "[a-f0-9]", r"\d", r"\w", r"\n", ".", "é", r"\.", "(?:)"]


def _repeat(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}"])
    return st.builds(lambda part, count: f"(?:{part}){count}", inner, counts)


common = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        _repeat(inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.lists(inner, min_size=1, max_size=3).map("".join),
    ),
    max_leaves=6,
)


def ours(pattern: str) -> Automaton:
    return automaton(parse("(?a)" + pattern), Limits())


@settings(max_examples=150, deadline=None)
@given(common)
def test_the_languages_are_equal(pattern: str) -> None:
    text = difference(ours(pattern), parse_pattern(pattern).to_fsm())
    assert text is None, f"{text!r} is {'' if re.fullmatch(pattern, text, re.ASCII) else 'no '}match of {pattern!r}"


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d{4}-\d{2}-\d{2}",
        r"(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}",
        r"[\w.+-]+@[\w-]+\.[\w.-]+",
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?",
    ],
)
def test_common_patterns(pattern: str) -> None:
    assert difference(ours(pattern), parse_pattern(pattern).to_fsm()) is None


def test_a_difference_would_be_found() -> None:
    assert difference(ours("a{2,4}"), parse_pattern("a{2,5}").to_fsm()) == "aaaaa"


def test_the_second_opinion() -> None:
    assert second_opinion(r"\d{4}-\d{2}").agrees is True
    anchored = second_opinion("^a$")
    assert anchored.agrees is None
    assert anchored.why
    large = second_opinion("(a|b)*a(a|b){9}")
    assert large.agrees is None
    assert "states" in large.why
    with pytest.raises(GrammarError):
        second_opinion("(a")
