"""Where in an output its text is: known character by character, the same however it is cut, and what the events say."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from output_cases import CASES, Case, cut, events_of, parser_of
from test_parser_fuzz import FORMATS, pieces_for

from palmette.runtime.parsers.protocol import CallBegun, Event, OutputParser, ReasoningDelta, TextDelta

Runs = dict[int, str]


def without_space(texts: Runs) -> Runs:
    bare = {run: re.sub(r"\s", "", text) for run, text in texts.items()}
    return {run: text for run, text in bare.items() if text}


def told(events: Iterable[Event]) -> Runs:
    """The texts between reasoning and calls, numbered as surfaces that tell items apart number them."""
    runs: Runs = {}
    run, thinking = 0, False
    for event in events:
        if isinstance(event, CallBegun) or (isinstance(event, ReasoningDelta) and not thinking):
            run += 1
        if isinstance(event, TextDelta):
            runs[run] = runs.get(run, "") + event.text
        thinking = isinstance(event, ReasoningDelta)
    return runs


def found(parser: OutputParser, pieces: Iterable[str]) -> Runs:
    """The same by the spans: each character is looked at as soon as it is decided, and never again."""
    text, runs, at = "", dict[int, str](), 0
    for piece in (*pieces, None):
        if piece is None:
            parser.finish()
        else:
            parser.push(piece)
            text += piece
        decided = len(text) if piece is None else parser.decided
        assert at <= decided <= len(text)
        for index in range(at, decided):
            for span in parser.text:
                if span.begin <= index < span.end:
                    runs[span.run] = runs.get(span.run, "") + text[index]
        at = decided
    return runs


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_spans_hold_what_is_said(case: Case) -> None:
    expected = without_space(told(events_of(parser_of(case), [case.output])))
    whole = found(parser_of(case), [case.output])
    assert without_space(whole) == expected
    assert found(parser_of(case), case.output) == whole


@pytest.mark.parametrize(("name", "reasoning"), FORMATS)
def test_spans_are_the_same_however_it_comes(name: str, reasoning: str) -> None:
    @settings(max_examples=25)
    @given(pieces=pieces_for(name, reasoning), data=st.data())
    def check(pieces: list[str], data: st.DataObject) -> None:
        case = Case(id="", tools=name, thinks=reasoning, output="".join(pieces))
        whole = found(parser_of(case), [case.output])
        assert without_space(whole) == without_space(told(events_of(parser_of(case), [case.output])))
        at = data.draw(st.lists(st.integers(0, len(case.output)), max_size=5))
        assert found(parser_of(case), cut(case.output, at)) == whole
        assert found(parser_of(case), pieces) == whole

    check()
