"""Values of formats that aren't JSON: typed by schemas, read as literals."""

from __future__ import annotations

import ast
import json
import math
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.parsers.cursor import Cursor, Ended
from palmette.runtime.parsers.json_text import clean
from palmette.runtime.parsers.literals import (
    PYTHON,
    Quotes,
    literal_json,
    partial_json,
    raw_value,
    read_literal,
    unescape,
)
from palmette.runtime.parsers.values import Schema, typed


@pytest.mark.parametrize(
    ("text", "kinds", "expected"),
    [
        ("5", {"integer"}, 5),
        ("5.0", {"integer"}, 5),
        ("5", {"number"}, 5),
        ("5", {"string"}, "5"),
        ("5", {"string", "integer"}, 5),
        ("5", None, 5),
        ("five", {"integer"}, "five"),
        ("5", {"boolean"}, 5),  # of no type that was asked for; the tool may say so
        ("true", {"boolean"}, True),
        ("True", {"boolean"}, True),
        ("None", {"string", "null"}, None),
        ("null", {"string"}, "null"),
        ("True", {"string"}, "True"),
        (" [1, 2]\n", {"array"}, [1, 2]),
        ("[1, 2", {"array"}, "[1, 2"),
        ("{'a': (1, None)}", {"object"}, {"a": [1, None]}),
        ('{"a": 1}', {"string"}, '{"a": 1}'),
        ('"x"', {"string"}, '"x"'),
        ("x\ny ", None, "x\ny "),
        ("NaN", {"number"}, "NaN"),
        ("", None, ""),
        ("9" * 5000, {"integer"}, "9" * 5000),
    ],
)
def test_typed(text: str, kinds: set[str] | None, expected: Any) -> None:
    assert json.loads(typed(text, None if kinds is None else frozenset(kinds))) == expected


def test_kinds_of_a_schema() -> None:
    schema = Schema(
        {
            "type": "object",
            "properties": {
                "plain": {"type": "string"},
                "two": {"type": ["string", "NULL"]},
                "choice": {"enum": ["a", 1, None]},
                "constant": {"const": True},
                "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Count"}]},
                "both": {"allOf": [{"$ref": "#/$defs/Count"}, {"minimum": 1}]},
                "unknown": {"description": "anything"},
                "half-known": {"oneOf": [{"type": "string"}, {}]},
                "endless": {"$ref": "#/properties/endless"},
                "nowhere": {"$ref": "#/$defs/Missing"},
                "odd": 5,
            },
            "additionalProperties": {"type": "boolean"},
            "$defs": {"Count": {"type": "integer"}},
        }
    )
    kinds = {name: schema.kinds(name) for name in [*schema.names(), "more"]}
    assert {name: None if found is None else set(found) for name, found in kinds.items()} == {
        "plain": {"string"},
        "two": {"string", "null"},
        "choice": {"string", "integer", "number", "null"},
        "constant": {"boolean"},
        "either": {"string", "integer"},
        "both": {"integer"},
        "unknown": None,
        "half-known": None,
        "endless": None,
        "nowhere": None,
        "odd": None,
        "more": {"boolean"},
    }
    assert Schema(None).kinds("x") is None
    assert Schema({"properties": 5}).names() == []


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150)
@given(JSON_VALUES)
def test_what_python_writes_is_read_as_python_reads_it(value: Any) -> None:
    assert read_literal(repr(value)) == value
    assert read_literal(json.dumps(value)) == value
    assert json.loads(literal_json(f" {value!r} ")) == value


@settings(max_examples=100)
@given(st.text(alphabet="ab\\nxuN{}'\"07 \n", max_size=8))
def test_escapes_mean_what_python_means(body: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes that Python is going to refuse
            expected = ast.literal_eval(f'"""{body} """')
    except (SyntaxError, ValueError):
        return
    if '"""' not in body:
        assert clean(unescape(body + " ")) == expected


@settings(max_examples=200)
@given(st.text(alphabet="{}[]()'\"\\,:ab1.-_ \nTrue", max_size=20))
def test_any_text_has_a_json(text: str) -> None:
    json.loads(literal_json(text))
    partial_json(text)
    try:
        found = read_literal(text)
    except ValueError:
        return
    json.dumps(found, allow_nan=False)


def test_words_and_numbers() -> None:
    assert read_literal("[1_000, 0x1F, -2, +3.5, 1e3, .5, True, null, (1,), word, nan, 1e999]") == [
        1000, 31, -2, 3.5, 1000.0, 0.5, True, None, [1], "word", "nan", "1e999",
    ]  # fmt: skip
    assert read_literal("{1: 'a', None: 'b', x: 'c'}") == {"1": "a", "null": "b", "x": "c"}
    assert read_literal("'a' \"b\"") == "ab"
    assert read_literal("'\\ud83c\\udf0d \\ud83c'") == "🌍 \ufffd"
    assert math.isclose(read_literal("3.25"), 3.25)
    for text in ("", "'a", "[1", "{1}", "{1: 2", "f(x)", "1 2", "[" * 100 + "]" * 100, ")"):
        with pytest.raises(ValueError):
            read_literal(text)


def test_a_value_ends_at_a_comma_or_closer_outside_of_strings() -> None:
    gemma = Quotes(("<q>",), escapes=False)
    for text, quotes, closer, value in [
        ("'a,b)', c", PYTHON, ")", "'a,b)'"),
        ("'a\\',', c", PYTHON, ")", "'a\\','"),
        ("'''a','b''', c", PYTHON, ")", "'''a','b'''"),
        ("''), c", PYTHON, ")", "''"),
        ("[1, (2, 3)], c", PYTHON, ")", "[1, (2, 3)]"),
        ("<q>a,}<q>}", gemma, "}", "<q>a,}<q>"),
        ("a<b}", gemma, "}", "a<b"),
        ("]}", gemma, "}", "]"),
    ]:
        for size in range(1, len(text) + 1):
            cursor, pieces = Cursor(), list[str]()
            steps = raw_value(cursor, pieces.append, quotes, closer)
            for at in range(0, len(text), size):
                cursor.feed(text[at : at + size])
                if next(steps, "done") == "done":
                    break
            assert "".join(pieces) == value, (text, size)


def test_a_value_that_is_cut_off_can_be_read() -> None:
    cursor, pieces = Cursor(), list[str]()
    cursor.feed("'ab\\")
    cursor.end()
    with pytest.raises(Ended):
        next(raw_value(cursor, pieces.append, PYTHON, ")"))
    assert "".join(pieces) == "'ab\\"
    assert partial_json("'ab\\") == '"ab\\\\'
    assert partial_json(' "a"b') == '"a\\"b'
    assert partial_json("12") == "12"
