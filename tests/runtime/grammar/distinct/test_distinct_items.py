"""uniqueItems over items that can't be listed."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest
from schema_cases import EOS, SPACE, allowed, generate, schema_grammar

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.masks import fill_masks
from palmette.runtime.grammar.distinct.matcher import DistinctMatcher
from palmette.runtime.grammar.distinct.reading import MAX_DEPTH
from palmette.runtime.grammar.protocol import Matcher, mask_words


def unique(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **more}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


STRING: dict[str, Any] = {"type": "string"}
TIGHT: dict[str, Any] = {"type": "string", "pattern": "^[ab]{1,2}$"}
ACCEPTED: dict[str, Any] = {
    "strings": unique(STRING),
    "strings of a length": unique({"type": "string", "maxLength": 1}, minItems=2),
    "few strings": unique(TIGHT),
    "exactly few": unique(TIGHT, maxItems=9),
    "integers": unique({"type": "integer"}),
    "integers within": unique({"type": "integer", "minimum": -3, "maximum": 99}),
    "numbers": unique({"type": "number"}),
    "numbers within": unique({"type": "number", "minimum": 0, "maximum": 2}),
    "anything": {"uniqueItems": True},
    "objects with numbers": unique({"properties": {"n": {"type": "number"}}, "type": "object"}),
    "of several types": unique({"type": ["string", "integer", "null", "boolean"]}),
    "many values": unique({"enum": [f"v{number}" for number in range(70)]}),
    "open objects": unique({"type": "object", "properties": {"a": {"type": "boolean"}}}),
    "closed objects": unique(closed(a={"type": "boolean"}, b={"enum": ["x", "y"]}), maxItems=9),
    "arrays of arrays": unique(unique({"enum": [*range(70)]}, maxItems=2)),
    "a prefix": unique({"type": ["boolean", "string"]}, prefixItems=[STRING]),
    "or one": {"anyOf": [STRING, unique(STRING)]},
    "below names": closed(a=unique(TIGHT), b={"type": "array", "items": TIGHT, "maxItems": 3}),
    "below any name": {"type": "object", "additionalProperties": unique(TIGHT)},
    "within itself": {"type": "object", "properties": {"t": unique(TIGHT), "c": {"$ref": "#"}}},
    "numbers in closed objects": unique(closed(n={"type": "number", "minimum": 0, "maximum": 1}, t={"enum": ["x"]})),
    "any numbers in closed objects": unique(closed(n={"type": "number"}, m={"type": "integer"})),
    "objects with names of a kind": unique({**closed(a={"type": "number"}), "patternProperties": {"^x-": True}}),
    "names of a kind, to their end": unique({**closed(a=TIGHT), "patternProperties": {"^x-[a-z]+$": {"type": "null"}}}),
    "open objects in closed ones": unique(closed(m={"type": "object"}, t={"enum": ["x"]})),
    "open objects of numbers": unique(closed(m={"type": "object", "additionalProperties": {"type": "number"}}, l={
        "type": "array", "items": {"type": "number"}}, b=closed(z={"type": "boolean"}, a={"const": 1}))),
    "one of a kind among strings": unique(STRING, contains={"pattern": "^a"}),
    "one of a kind among few": unique(TIGHT, contains={"enum": ["a", "bb"]}),
    "one of a kind among objects": unique(
        closed(k=TIGHT, n={"type": "number"}), contains={"properties": {"k": {"const": "a"}}}),
    "one of a kind within items": unique(closed(l={"type": "array", "items": TIGHT, "contains": {"const": "a"}})),
    "recursive items": {"$ref": "#/$defs/n", "$defs": {
        "n": closed(v={"enum": [1, 2]}, c=unique({"$ref": "#/$defs/n"}))}},
    "one place of several": {"type": "array", "maxItems": 3, "prefixItems": [
        {"type": "array", "items": TIGHT}, unique(TIGHT), {"type": "object", "properties": {"a": unique(TIGHT)}}]},
    "without types": {"uniqueItems": True, "items": STRING, "type": ["array", "string"]},
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_generated_differs(name: str) -> None:
    """No repeated item, no dead end, and accepts() agrees."""
    schema = ACCEPTED[name]
    grammar = schema_grammar(schema)
    ended = 0
    for seed in range(12):
        text = generate(grammar.matcher(), random.Random(seed), 120)
        if text is not None:
            ended += 1
            assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)), text
            assert grammar.accepts(text)
    assert ended


@pytest.mark.parametrize(
    ("name", "texts", "others"),
    [
        ("strings", ['["a", "b", "ab"]', "[]", '[""]'], ['["a", "b", "a"]', '["", ""]']),
        ("few strings", ['["a", "b", "aa", "ab", "ba", "bb"]'], ['["ab", "a", "ab"]']),
        ("integers", ["[0, 1, 10]", "[-1, 1]"], ["[1, 1]", "[0, -0]", "[12, 1, 12]"]),
        ("objects with numbers", ['[{"n": 1}, {"n": 2}]'], ['[{"n": 10}, {"n": 10.0}]', '[{"n": 10}, {"n": 1e1}]']),
        ("numbers", ["[1, 1.5, 10]"], ["[1, 1.0]", "[1, 1e0]", "[0.5, 0.50]", "[0, -0.0]"]),
        ("numbers within", ["[1, 1.5, 2, 0]"], ["[2, 2.0]", "[0, -0]"]),
        ("anything", ['[1, "1", [1], {"a": 1}]', "[[1, 1], [1]]"], ['[{"a": [1]}, {"a": [1.0]}]', "[[], []]"]),
        ("of several types", ['[1, "1", true, null]'], ["[null, null]", "[true, 1, true]"]),
        ("open objects", ['[{"a": true}, {"a": true, "b": 1}, {}]'], ['[{"x": 1, "y": 2}, {"y": 2, "x": 1}]']),
        ("arrays of arrays", ["[[1, 2], [2, 1]]", "[[], [0]]"], ["[[1], [1]]", "[[1, 1]]", "[[], []]"]),
        ("below names", ['{"a": ["a", "b"], "b": ["a", "a"]}'], ['{"a": ["a", "a"], "b": []}']),
        ("within itself", ['{"t": ["a"], "c": {"t": ["a"]}}'], ['{"c": {"c": {"t": ["b", "b"]}}}']),
        ("any numbers in closed objects", ['[{"n": 1, "m": 1}, {"n": 1.5, "m": 1}]'],
         ['[{"n": 1, "m": 1}, {"n": 1, "m": 1}]', '[{"n": 1.0, "m": 1}, {"n": 2, "m": 1}]']),
        ("objects with names of a kind", ['[{"a": 1, "x-b": 1, "x-c": 2}, {"a": 1, "x-b": 1}]'],
         ['[{"a": 1, "x-b": 1, "x-c": 2}, {"a": 1.0, "x-c": 2, "x-b": 1}]']),
        ("open objects in closed ones", ['[{"m": {"a": 1}, "t": "x"}, {"m": {"a": 2}, "t": "x"}]'],
         ['[{"m": {"a": 1, "b": 2}, "t": "x"}, {"m": {"b": 2, "a": 1}, "t": "x"}]',
          '[{"m": {"a": 1}, "t": "x"}, {"m": {"a": 1.0}, "t": "x"}]', '[{"m": {}, "t": "x"}, {"m": {}, "t": "x"}]']),
        ("open objects of numbers",
         ['[{"m": {"q": 1}, "l": [], "b": {"z": true, "a": 1}}, {"m": {}, "l": [], "b": {"z": true, "a": 1}}]'],
         ['[{"m": {"q": 1, "p": 1}, "l": [2], "b": {"z": true, "a": 1}}, '
          '{"m": {"p": 1.0, "q": 1}, "l": [2.0], "b": {"z": true, "a": 1}}]']),
        ("one of a kind among few", ['["b", "a"]', '["bb", "a"]'], ['["b", "aa"]', '["a", "a"]', "[]"]),
        ("one of a kind among objects", ['[{"k": "a", "n": 1}, {"k": "a", "n": 2}]'],
         ['[{"k": "b", "n": 1}]', '[{"k": "a", "n": 1}, {"k": "a", "n": 1}]']),
        ("one of a kind within items", ['[{"l": ["a"]}, {"l": ["a", "a"]}]'],
         ['[{"l": ["a"]}, {"l": ["a"]}]', '[{"l": []}]']),
        ("one place of several", ['[["a", "a"], ["a", "b"], {"a": ["a"]}]'],
         ['[["a"], ["a", "a"]]', '[[], [], {"a": ["b", "b"]}]']),
        ("recursive items", ['{"v": 1, "c": [{"v": 1, "c": []}, {"v": 2, "c": []}]}'],
         ['{"v": 1, "c": [{"v": 1, "c": []}, {"v": 1, "c": []}]}',
          '{"v": 1, "c": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 2, "c": []}]}]}']),
        ("or one", ['["x"]', '"x, x"'], ['["x", "x"]']),
    ],
)  # fmt: skip
def test_which_texts_are_accepted(name: str, texts: list[str], others: list[str]) -> None:
    grammar = schema_grammar(ACCEPTED[name])
    for text in texts:
        assert grammar.accepts(text), grammar.explain(text)
        assert takes(grammar.matcher(), text)
    for text in others:
        assert not grammar.accepts(text), text
        assert not takes(grammar.matcher(), text), text


def takes(matcher: Matcher, text: str) -> bool:
    for byte in text.encode():
        inside = byte in allowed(matcher)
        assert matcher.accept(byte) == inside
        if not inside:
            return False
    return matcher.may_end


def test_where_it_fails_is_told() -> None:
    explained = schema_grammar(ACCEPTED["strings"]).explain('["é", "b", "é"]')
    assert (explained.matches, explained.position) == (False, 13)
    assert "uniqueItems" in explained.message


@pytest.mark.parametrize(
    "name",
    ["few strings", "of several types", "closed objects", "arrays of arrays", "integers", "numbers within", "anything",
     "numbers in closed objects", "any numbers in closed objects", "names of a kind, to their end",
     "one place of several", "open objects in closed ones", "open objects of numbers",
     "one of a kind among few", "one of a kind among objects",
     "one of a kind within items"],
)  # fmt: skip
def test_masks_are_what_is_accepted(name: str) -> None:
    """At random places of outputs: a token is in the mask just where it is accepted, and then there is a way on."""
    grammar, chance = schema_grammar(ACCEPTED[name]), random.Random(3)
    for _ in range(8):
        matcher, plain = grammar.matcher(), grammar.plain_matcher()
        for _ in range(chance.randint(4, 25)):
            tokens = [token for token in allowed(matcher) if token != EOS]
            if not tokens:
                break
            token = chance.choice(tokens)
            assert matcher.accept(token)
            assert plain.accept(token)
        inside = set(allowed(matcher))
        assert inside <= set(allowed(plain))
        for token in allowed(plain):
            ahead = matcher.copy()
            assert ahead.accept(token) == (token in inside)
            assert token not in inside or token == EOS or allowed(ahead)


def test_the_last_that_is_left() -> None:
    """Of six strings five are there: only the sixth can be begun, and then the array can only be closed."""
    matcher = schema_grammar(ACCEPTED["few strings"]).matcher()
    for byte in b'["a", "b", "aa", "ab", "ba", ':
        assert matcher.accept(byte)
    assert allowed(matcher) == [ord('"')]
    for byte in b'"b':
        assert matcher.accept(byte)
    assert allowed(matcher) == [ord("b")]
    for byte in b'b"':
        assert matcher.accept(byte)
    assert [token for token in allowed(matcher) if token < 256] == [ord("]")]


def test_rollback_and_copies() -> None:
    matcher = schema_grammar(ACCEPTED["strings"]).matcher()
    assert isinstance(matcher, DistinctMatcher)
    for byte in b'["a", "a':
        assert matcher.accept(byte)
    assert not matcher.accept(ord('"'))
    fork = matcher.copy()
    matcher.rollback(1)
    assert matcher.accept(ord("b"))
    assert matcher.accept(ord('"'))
    assert not fork.accept(ord('"'))
    matcher.rollback(5)
    for byte in b', "ab", "a':
        assert matcher.accept(byte)
    assert not matcher.accept(ord('"'))


def test_a_way_to_an_end_repeats_nothing() -> None:
    matcher = schema_grammar(ACCEPTED["strings"]).matcher()
    for byte in b'["a", "a':
        assert matcher.accept(byte)
    way = matcher.closing()
    assert way is not None
    for token in way:
        assert matcher.accept(token)
    assert matcher.may_end


@pytest.mark.parametrize("schema", [{"uniqueItems": True}, unique({"type": "array"})])
def test_items_nest_as_deeply_as_they_can_be_compared(schema: Any) -> None:
    """Beyond that no further array may begin, and mask and accept() are of one mind; nothing is raised."""
    matcher = schema_grammar(schema).matcher()
    depth = 0
    [opens], [closes] = SPACE.encode("["), SPACE.encode("]")
    while opens in allowed(matcher):
        assert depth < 1_000
        assert matcher.accept(opens)
        depth += 1
    assert depth == MAX_DEPTH
    assert not matcher.accept(opens)
    for _ in range(depth):
        assert closes in allowed(matcher)
        assert matcher.accept(closes)
    assert matcher.may_end


def test_a_batch() -> None:
    matchers = [schema_grammar(ACCEPTED[name]).matcher() for name in ("strings", "integers", "strings")]
    for byte in b'["a", "a':
        assert matchers[0].accept(byte)
    words = mask_words(SPACE.vocabulary.size)
    together, alone = np.zeros((3, words), np.uint32), np.zeros(words, np.uint32)
    fill_masks(matchers, together)
    for row, matcher in zip(together, matchers, strict=True):
        matcher.fill_mask(alone)
        assert (row == alone).all()
    assert not together[0][ord('"') >> 5] >> np.uint32(ord('"') & 31) & 1


@pytest.mark.parametrize(
    "schema",
    [
        unique(TIGHT, minItems=7),  # there are six
        unique({"type": "number", "multipleOf": 0.5}),
        unique(STRING, contains={"const": "a"}, maxContains=1),
        unique(closed(n={"type": "number", "multipleOf": 0.5})),
        {"anyOf": [unique(STRING), {"type": "array", "items": STRING, "minItems": 2}]},
        {"anyOf": [closed(a=unique(STRING)), {"const": {"a": ["x", "x"]}}]},
    ],
)
def test_what_is_refused(schema: Any) -> None:
    with pytest.raises(GrammarError, match="'uniqueItems' can't be enforced"):
        schema_grammar(schema)
    assert schema_grammar(schema, best_effort=True).approximated


PLACES = [
    {"type": "null"}, True, {"enum": ["a", "ab", 1]}, {"type": "string"}, {"type": "boolean"}, {"type": "integer"},
    {"type": "string", "maxLength": 1, "pattern": "^[ab]"}, {"type": "array", "maxItems": 1},
]  # fmt: skip


def test_places_of_few_items_behind_places_of_many() -> None:
    """Where a place has no other item left than those that are there, the array ends before it."""
    chance, ended = random.Random(2), 0
    for _ in range(60):
        before = chance.choices(PLACES, k=chance.randint(1, 3))
        schema = {"type": "array", "prefixItems": before, "items": chance.choice(PLACES), "uniqueItems": True}
        try:
            grammar = schema_grammar(schema)
        except GrammarError:
            continue
        for seed in range(10):
            text = generate(grammar.matcher(), random.Random(seed), 80)
            if text is not None:
                ended += 1
                assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)), (schema, text)
    assert ended > 100
