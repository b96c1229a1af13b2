"""Traps of JSON Schema, one by one: what is accepted, refused, rewritten; and what is an error."""
# ruff: noqa: E501 (a table)

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_cases import SPACE, allowed, generate, schema_grammar

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.llg.start import start
from palmette.runtime.grammar.llg.tokenizers import byte_tokenizer
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.schema import ecma, json_strings, keyword_forms
from palmette.runtime.grammar.schema.compile import build
from palmette.runtime.grammar.schema.found import finds
from palmette.runtime.grammar.schema.keywords import keywords, table
from palmette.runtime.grammar.schema.numerals import Interval, integer_regex, number_terminal

OBJECT = {"type": "object", "additionalProperties": False}

# schema, values that are valid, values that aren't
CASES: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("maxLength beside pattern", {"type": "string", "pattern": "^a", "maxLength": 2}, ["a", "ab"], ["abc", "b"]),
    ("lengths in code points", {"type": "string", "minLength": 2, "maxLength": 2}, ["é😀", 'a"'], ["é", "abc"]),
    ("maxLength beside format", {"type": "string", "format": "ipv4", "maxLength": 7}, ["1.2.3.4"], ["10.20.30.4"]),
    ("uniqueItems of an enum", {"items": {"enum": ["a", "b", 1]}, "uniqueItems": True, "type": "array"},
     [[], ["b", "a"], [1, "a", "b"]], [["a", "a"], [1, 1.0]]),
    ("uniqueItems of integers", {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 63}, "uniqueItems": True, "minItems": 2, "maxItems": 3},
     [[63, 0], [5, 4, 3]], [[1, 1], [1], [1, 2, 3, 4], [64, 1]]),
    ("contains", {"type": "array", "contains": {"const": 1}, "items": {"type": "integer"}}, [[1], [2, 1]], [[], [2]]),
    ("minContains, maxContains", {"type": "array", "contains": {"type": "string"}, "minContains": 1, "maxContains": 2},
     [["a"], ["a", 1, "b"]], [[], [1], ["a", "b", "c"]]),
    ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 2}], [{"a": 1}]),
    ("dependentSchemas", {"type": "object", "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}}}},
     [{"a": 1, "b": None}, {"b": 3}], [{"a": 1, "b": 3}]),
    ("if, then, else", {"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "v": True}, "required": ["k"],
      "if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["v"]}, "else": {"maxProperties": 1}},
     [{"k": "x", "v": 1}, {"k": "y"}], [{"k": "x"}, {"k": "y", "v": 1}]),
    ("not", {"type": ["string", "integer"], "not": {"enum": ["a", 3]}}, ["b", 4], ["a", 3]),
    ("patternProperties beside additionalProperties",
     {"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 2}}, "additionalProperties": False},
     [{"x": 1}, {"xy": 2}], [{"xy": 1}, {"z": 1}, {"x": "a"}]),
    ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[ab]$"}}, [{"a": 1}], [{"c": 1}]),
    ("propertyNames as a list", {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2},
     [{"a": 1, "b": 2}], [{"a": 1}, {"c": 1, "a": 2}]),
    ("minProperties, maxProperties", {**OBJECT, "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 1, "maxProperties": 2},
     [{"a": 1}, {"b": 1, "c": 1}], [{}, {"a": 1, "b": 1, "c": 1}]),
    ("multipleOf with decimals", {"type": "number", "multipleOf": 0.01, "minimum": 0}, [0.01, 4.35, 7], [0.005, -0.01]),
    ("oneOf that overlaps", {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]}, [1, 2.5], [3, 1.5]),
    ("oneOf by a discriminator", {"type": "object", "required": ["t"], "oneOf": [
        {"properties": {"t": {"const": "a"}, "x": {"type": "integer"}}},
        {"properties": {"t": {"const": "b"}, "x": {"type": "string"}}}]},
     [{"t": "a", "x": 1}, {"t": "b", "x": "s"}], [{"t": "a", "x": "s"}, {"t": "c"}]),
    ("allOf merged", {"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 3}}, "required": ["a"]}],
                      "type": "object"}, [{"a": 2}], [{"a": 4}, {"a": 0}, {}]),
    ("recursion", {"$defs": {"n": {**OBJECT, "properties": {"v": {"type": "integer"}, "next": {"anyOf": [
        {"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["next"]}}, "$ref": "#/$defs/n"},
     [{"next": None}, {"v": 1, "next": {"next": None}}], [{"next": {}}]),
    ("anchors", {"$defs": {"x": {"$anchor": "here", "type": "null"}}, "$ref": "#here"}, [None], [1]),
    ("unevaluatedProperties", {"type": "object", "properties": {"a": {}}, "anyOf": [
        {"properties": {"b": {"const": 1}}, "required": ["b"]}, {"required": ["a"]}], "unevaluatedProperties": False},
     [{"a": 1}, {"a": 1, "b": 1}], [{"a": 1, "b": 2}, {"a": 1, "c": 1}]),
    ("exclusive bounds", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, [0.5, 0.001], [0, 1, -0.5]),
    ("numbers beyond floats", {"type": "integer", "minimum": 9007199254740993}, [9007199254740993], [9007199254740992]),
    ("1.0 is an integer", {"type": "integer"}, [1.0, 10**30], [1.5]),
    ("equal enum values", {"enum": [1, 1.0, "a", "a"]}, [1, "a"], ["1"]),
    ("objects in an enum", {"enum": [{"b": 1, "a": [2]}, None]}, [{"a": [2], "b": 1}, None], [{"a": [2]}]),
    ("boolean schemas", {**OBJECT, "properties": {"a": True, "b": False}}, [{}, {"a": [1]}], [{"b": 1}]),
    ("type arrays", {"type": ["null", "boolean"]}, [None, True], [0, "null"]),
    ("prefixItems, items false", {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
     [[], [1], [1, "a"]], [["a"], [1, "a", 2]]),
    ("required but not declared", {"type": "object", "required": ["q"], "properties": {"a": {}}}, [{"a": 1, "q": 2}], [{"a": 1}]),
    ("draft 4", {"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 1, "exclusiveMinimum": True},
     [2], [1]),
    ("draft 7 items", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "null"}],
                       "additionalItems": {"type": "integer"}}, [[None, 1], []], [[None, "a"]]),
    ("draft 7 dependencies", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                              "dependencies": {"a": ["b"], "c": {"maxProperties": 1}}}, [{"c": 1}], [{"a": 1}, {"c": 1, "d": 1}]),
    ("draft 3", {"$schema": "http://json-schema.org/draft-03/schema#", "type": "object", "properties": {
        "a": {"type": "integer", "required": True, "divisibleBy": 5}, "b": {"type": ["null", {"maxLength": 1, "type": "string"}]},
        "c": {"type": "any", "disallow": ["array", "object"]}, "d": {"extends": {"maximum": 3}, "type": "number"}}},
     [{"a": 10}, {"a": 5, "b": "x", "c": 1, "d": 3}, {"a": 5, "b": None}],
     [{}, {"a": 7}, {"a": 5, "b": "xy"}, {"a": 5, "b": 1}, {"a": 5, "c": []}, {"a": 5, "d": 4}, {"a": 5, "d": "s"}]),
    ("draft 3 time", {"$schema": "http://json-schema.org/draft-03/schema#", "type": "string", "format": "time"},
     ["23:59:00"], ["24:00:00", "23:59:00Z"]),
    ("forms of draft 3 alone", {"type": "object", "properties": {"a": {"type": "any", "required": True}, "b": {"required": False}}},
     [{"a": 1}, {"a": None, "b": 2}], [{"b": 1}]),
    ("an exclusive bound of draft 4", {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 2,
                                       "exclusiveMaximum": False}, [1, 2], [0, 3]),
    ("ids that repeat", {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {
        "a": {"id": "0", "type": "string"}, "b": {"type": "array", "items": {"id": "0", "type": "integer"}}}},
     [{"a": "x", "b": [1]}], [{"a": 1}, {"b": ["x"]}]),
    ("what is no definition", {"definitions": {"note": "of the author", "a": {"type": "null"}}, "$ref": "#/definitions/a"},
     [None], [1]),
    ("more items than there can be", {"type": "array", "maxItems": 2147483647, "items": {"type": "null"}}, [[None] * 9], [[1]]),
    ("a publisher's name for draft 4", {
        "$schema": "http://iglucentral.com/schemas/com.snowplowanalytics.self-desc/schema/jsonschema/1-0-0#",
        "self": {"vendor": "org.example", "name": "click", "format": "jsonschema", "version": "1-0-0"},
        "type": "integer", "minimum": 1, "exclusiveMinimum": True}, [2], [1, "click"]),
    ("a name that isn't known", {"$schema": "https://example.org/mine", "type": "integer", "minimum": 1}, [1], [0]),
    ("many patterns that exclude one another", {"type": "object", "additionalProperties": False, "patternProperties": {
        f"^{letter}[0-9]$": {"const": letter} for letter in "abcdefghijkl"} | {"^a": {"type": "string"}}},
     [{"a1": "a", "l2": "l"}, {"ab": "q"}, {}], [{"a1": "b"}, {"m1": "m"}, {"ab": 1}, {"l2": "a"}]),
    ("look-ahead", {"type": "string", "pattern": "^(?!admin$)[a-z]+$"}, ["user", "admins"], ["admin", "A"]),
    ("needless escape", {"type": "string", "pattern": "^hello there\\!$"}, ["hello there!"], ["hello there"]),
    ("names to be escaped", {**OBJECT, "properties": {'a"b\\\n': {"const": "\u0001"}}}, [{'a"b\\\n': "\u0001"}], [{"a": 1}]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "valid", "invalid"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_traps(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    grammar = schema_grammar(schema)
    for value in valid:
        assert grammar.validate(value) is None
        assert grammar.accepts(grammar.serialise(value)), value
    for value in invalid:
        assert grammar.validate(value) is not None
        assert not grammar.accepts(grammar.serialise(value)), value
    for seed in range(3):
        text = generate(grammar.matcher(), random.Random(seed), 150)
        assert text is None or grammar.validate(json.loads(text)) is None


# schema, what the error says
ERRORS: list[tuple[Any, str]] = [
    ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "refers only to itself"),
    ({"$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"}, "refers only to itself"),
    ({"properties": {"foo": "bar"}}, "#/properties/foo"),
    ({"properties": 3}, "'properties' at #"),
    ({"type": "strin"}, "'type' at #"),
    ({"minimum": "3"}, "'minimum' at #"),
    ({"$ref": "https://example.org/x.json"}, "nothing is fetched"),
    ({"$ref": "#/$defs/none"}, "isn't there"),
    ({"$ref": "#/$defs/none", "$defs": {"none": "a text"}}, "is no schema"),
    ({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}, "No value meets"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "No value meets"),
    ({"type": "string", "pattern": "^a$", "minLength": 3}, "No value meets"),
    ({"type": "array", "items": {"type": "number", "multipleOf": 0.5}, "uniqueItems": True}, "'uniqueItems'"),
    ({"type": "string", "pattern": "(a)\\1"}, "a back-reference"),
    ({"type": "object", "minProperties": 2}, "'minProperties'"),
    ({"type": "string", "format": "regex"}, "'format' at #"),
    ({"type": "number", "multipleOf": 0.123456789}, "'multipleOf'"),
    ({"$schema": "https://example.org/2020-12/mine"}, "dialect"),
    ({"$schema": 4}, "dialect"),
    ([], "a schema is an object"),
]


@pytest.mark.parametrize(("schema", "said"), ERRORS)
def test_what_cannot_be_is_named(schema: Any, said: str) -> None:
    with pytest.raises(GrammarError) as raised:
        schema_grammar(schema)
    assert said in raised.value.message


def test_names_of_a_list_are_written_in_its_order() -> None:
    grammar = schema_grammar({"type": "object", "properties": {"x": {}}, "propertyNames": {"enum": ["b", "a", "x"]}})
    assert grammar.serialise({"a": 1, "b": 2, "x": 3}) == '{"x": 3, "b": 2, "a": 1}'
    assert grammar.accepts('{"x": 3, "b": 2, "a": 1}')


def test_a_name_that_two_schemas_have_is_an_error_where_it_is_used() -> None:
    for name, reference in (({"$id": "https://example.org/x"}, "https://example.org/x"), ({"$anchor": "x"}, "#x")):
        one, other = {**name, "type": "null"}, {**name, "type": "integer"}
        with pytest.raises(GrammarError, match=r"#/\$defs/[ab] and #/\$defs/[ab] both have the name"):
            schema_grammar({"$ref": reference, "$defs": {"a": one, "b": other}})
        assert schema_grammar({"$defs": {"a": one, "b": other}, "$ref": "#/$defs/a"}).accepts("null")
        assert schema_grammar({"$defs": {"a": one, "b": one}}).accepts("1")


def test_arrays_of_every_small_size() -> None:
    for before, least, most in itertools.product(range(3), range(4), (*range(4), None)):
        if most is not None and least > most:
            continue
        sizes = {"minItems": least} | ({} if most is None else {"maxItems": most})
        schema = {"type": "array", "prefixItems": [{"type": "null"}] * before, "items": {"type": "boolean"}, **sizes}
        schema = schema if before else {key: value for key, value in schema.items() if key != "prefixItems"}
        grammar, judge = schema_grammar(schema), jsonschema.Draft202012Validator(schema)
        for size in range(6):
            value = ([None] * before + [True] * size)[:size]
            assert grammar.accepts(json.dumps(value)) == judge.is_valid(value), (schema, value)


def test_best_effort_generates_a_superset_and_judges_afterwards() -> None:
    grammar = schema_grammar(
        {"type": "array", "items": {"type": "number", "multipleOf": 0.5}, "uniqueItems": True}, best_effort=True
    )
    assert "uniqueItems" in grammar.approximated[0]
    assert grammar.accepts("[1, 1.0]")
    assert grammar.validate([1, 2]) is None
    fault = grammar.validate([1, 1.0])
    assert fault is not None
    assert fault.keyword == "uniqueItems"


def test_a_depth_of_hundreds_and_a_large_enum() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    with pytest.raises(GrammarError) as raised:
        schema_grammar(schema)
    assert "nested" in raised.value.message
    names = [f"value-{number}" for number in range(2000)]
    grammar = schema_grammar({"enum": names})
    assert grammar.accepts('"value-1999"')
    assert not grammar.accepts('"value-2000"')


def test_layouts_and_order() -> None:
    schema = {
        "type": "object",
        "properties": {"b": {"type": "integer"}, "a": {"type": "array"}},
        "required": ["a", "b"],
    }
    assert schema_grammar(schema).serialise({"a": [1, 2], "b": 1.0}) == '{"b": 1, "a": [1, 2]}'
    compact = schema_grammar(schema, compact=True)
    assert compact.serialise({"a": [1, 2], "b": 1}) == '{"b":1,"a":[1,2]}'
    assert compact.accepts('{"b":1,"a":[1,2]}')
    assert not compact.accepts('{"b": 1,"a":[1,2]}')
    with pytest.raises(GrammarError):
        schema_grammar(schema, indent=2)


def test_explain_names_the_keyword() -> None:
    grammar = schema_grammar({"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}})
    explained = grammar.explain('{"n": 61}')
    assert not explained.matches
    assert explained.position == 6
    assert explained.path == "#/properties/n"
    assert "'maximum'" in explained.message


def test_forced_bytes_and_rollback() -> None:
    grammar = schema_grammar({**OBJECT, "properties": {"name": {"const": "é"}}, "required": ["name"]})
    matcher = grammar.matcher()
    assert matcher.forced_bytes() == '{"name": "é"}'.encode()
    before = allowed(matcher)
    for byte in b'{"name':
        assert matcher.accept(byte)
    fork = matcher.copy()
    assert not matcher.accept(ord("x"))
    matcher.rollback(6)
    assert allowed(matcher) == before
    assert fork.forced_bytes() == '": "é"}'.encode()
    for token in fork.forced():
        assert fork.accept(token)
    assert fork.complete
    assert fork.accept(SPACE.vocabulary.eos_ids[0])
    assert fork.ended
    assert allowed(fork) == []


# Numbers and patterns, each against an independent judge

decimals = st.decimals(min_value=-1100, max_value=1100, places=2, allow_nan=False)


def _takes(terminal: str, text: str) -> bool:
    matcher = start(byte_tokenizer(), f"start: T\nT: {terminal}")
    raw = list(text.encode())
    return matcher.try_consume_tokens(raw) == len(raw) and bool(matcher.is_accepting())


@settings(max_examples=150, deadline=None)
@given(decimals, decimals, st.booleans(), st.booleans(), st.lists(decimals, min_size=1, max_size=5))
def test_numbers_of_an_interval(
    one: Decimal, other: Decimal, low_open: bool, high_open: bool, tried: list[Decimal]
) -> None:
    interval = Interval(min(one, other), max(one, other), low_open, high_open)
    if interval.empty:
        return
    terminal = number_terminal(interval)
    for value in (*tried, one, other):
        inside = interval.low < value < interval.high or (  # type: ignore[operator]
            (value == interval.low and not low_open) or (value == interval.high and not high_open)
        )
        if one == other:
            inside = value == one
        text = format(value, "f") if value else "0"
        assert _takes(terminal, text) == inside, (terminal, text)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(-1200, 1200) | st.none(),
    st.integers(0, 2500) | st.none(),
    st.lists(st.integers(-2000, 2000), max_size=6),
)
def test_integers_of_a_range(low: int | None, size: int | None, tried: list[int]) -> None:
    high = None if size is None else (low or 0) + size
    regex = f"/{integer_regex(low, high)}/"
    for value in [*tried, *(bound for bound in (low, high) if bound is not None)]:
        assert _takes(regex, str(value)) == ((low is None or value >= low) and (high is None or value <= high))


PIECES = (
    "a",
    "b",
    "[ab]",
    "[^a]",
    ".",
    "\\d",
    "\\w",
    "(a|b)",
    "(?:ab)?",
    "a*",
    "b+",
    "a{2}",
    "^",
    "$",
    "(?=a)",
    "(?!ab)",
    "|",
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), st.text(alphabet='ab1"\\\n é', max_size=5))
def test_patterns_mean_what_re_means(pattern: str, text: str) -> None:
    try:
        tree = ecma.parse(pattern)
        terminal = json_strings.pattern(tree)
    except GrammarError:
        return
    by_re = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert finds(tree, text) == by_re
    try:
        assert _takes(f'("\\"" {terminal} "\\"")', f'"{json_strings.written(text)}"') == by_re, terminal
    except GrammarError:
        assert not by_re  # a terminal that matches nothing


# The table


def test_the_table_has_every_keyword_that_is_read() -> None:
    names = {keyword.name for keyword in keywords()}
    assert set(keyword_forms.FORMS) <= names
    assert len(names) == len(keywords())


def test_the_page_shows_the_table(root: Any) -> None:
    page = (root / "docs" / "structured-generation.md").read_text()
    assert table() in page, "run: python -m palmette.runtime.grammar.schema.keywords"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_a_schema_or_an_error(raw: bytes) -> None:
    with contextlib.suppress(GrammarError):
        build(GrammarSource(kind="json_schema", text=raw.decode(errors="replace")), SPACE, Limits(seconds=2))


def test_what_is_nested_too_deeply_to_be_judged_is_a_fault() -> None:
    schema = {"items": {"$ref": "#"}, "uniqueItems": True, "type": "array", "minItems": 0}
    grammar = schema_grammar({"anyOf": [schema, {"type": "array", "contains": {"type": "number"}}]}, best_effort=True)
    assert grammar.approximated
    for depth in (40, 400, 100_000):
        problem = grammar.fault_of("[" * depth + "]" * depth)
        assert problem is None if depth == 40 else "depth" in str(problem)


def test_refusals_name_keyword_and_path() -> None:
    for schema, said in (
        ({"items": {"multipleOf": 0.5}, "uniqueItems": True}, "'uniqueItems'"),
        ({"type": "number", "multipleOf": 0.0000001}, "'multipleOf'"),
        ({"type": "object", "minProperties": 3}, "'minProperties' 3"),
    ):
        with pytest.raises(GrammarError) as raised:
            schema_grammar({"properties": {"deep": {"items": schema}}})
        assert said in raised.value.message
        assert "(at #/properties/deep/items)" in raised.value.message
        assert raised.value.param == "json_schema"
        assert raised.value.hint
