"""Arguments of calls as Anthropic's clients parse them: by the parser that they use (jiter), at every moment."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jiter import from_json

from palmette.runtime.api.messages.tool_input import LONGEST_SCALAR, MOST_NESTED, ToolInput, closed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)
CUTS = st.lists(st.integers(0, 300), max_size=8)
ALMOST_JSON = st.text(alphabet='{}[]",:\\ \n\tu0129dDeE.-+tfnrulase/bé😀\x00', max_size=60).map(lambda text: "{" + text)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[begin:end] for begin, end in pairwise(places)]


def said(text: str, cuts: list[int]) -> str:
    read = ToolInput()
    return "".join(read.push(piece) for piece in pieces(text, cuts))


@given(OBJECTS, st.booleans(), st.sampled_from([None, 2]), CUTS)
def test_json_passes_as_it_is(value: dict[str, Any], ascii_only: bool, indent: int | None, cuts: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    read = ToolInput()
    assert "".join(read.push(piece) for piece in pieces(text, cuts)) == text
    assert read.complete
    assert read.closed() == text


@given(OBJECTS, st.integers(0, 400), CUTS)
def test_what_was_cut_off_is_what_the_clients_make_of_it(value: dict[str, Any], end: int, cuts: list[int]) -> None:
    text = json.dumps(value)[:end]
    begun = said(text, cuts)
    seen = from_json(begun.encode(), partial_mode=True) if begun else {}
    assert json.loads(closed(begun)) == seen
    assert json.loads(closed(text)) == seen


@given(ALMOST_JSON, CUTS)
def test_whatever_a_model_writes_clients_can_read(text: str, cuts: list[int]) -> None:
    whole, read = said(text, []), ToolInput()
    begun = ""
    for piece in pieces(text, cuts):
        begun += read.push(piece)
        assert isinstance(from_json(begun.encode(), partial_mode=True), dict) if begun else True
    assert begun == whole
    assert isinstance(json.loads(read.closed()), dict)
    if read.complete:
        assert read.closed().strip() == begun.strip()


@pytest.mark.parametrize(
    ("text", "value", "complete"),
    [
        ('{"a": "x\ny\t"}', {"a": "x\ny\t"}, True),
        (r'{"a": "\d+\'s \\ \u00e9"}', {"a": "\\d+'s \\ é"}, True),
        (r'{"a": "\ud83d\ude00 \ud83d \ude00"}', {"a": "😀 � �"}, True),
        (r'{"a": "\u12"}', {"a": "\\u12"}, True),
        ('{"a": 12', {}, False),
        ('{"a": [1, 2', {"a": [1]}, False),
        ('{"a": 1, "b": {"c": "x", "d": "y', {"a": 1, "b": {"c": "x"}}, False),
        ('{"a": 1, "b": True}', {"a": 1}, False),
        ("{'a': 1}", {}, False),
        ('{"a": 1,}', {"a": 1}, False),
        ('{"a": [1}', {"a": [1]}, False),
        ("[1]", {}, False),
        ('"a"', {}, False),
        ("", {}, False),
        (' {"a": 1} {"b": 2}', {"a": 1}, True),
        ('{"a": ' + "9" * (LONGEST_SCALAR + 1) + "}", {}, False),
        ('{"a": NaN}', {}, False),
    ],
)
def test_what_models_write(text: str, value: dict[str, Any], complete: bool) -> None:
    for size in (1, 3, 1000):
        read = ToolInput()
        begun = "".join(read.push(text[at : at + size]) for at in range(0, len(text), size))
        assert json.loads(read.closed()) == value
        assert read.complete is complete
        assert (from_json(begun.encode(), partial_mode=True) if begun.strip() else {}) == value


def test_depth_is_limited() -> None:
    deep = ToolInput()
    deep.push('{"a": ' + "[" * 10_000)
    assert not deep.complete
    assert deep.closed().count("[") == MOST_NESTED - 1
