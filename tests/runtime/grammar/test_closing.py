"""Ways to an end: they are accepted, they end, and an automaton's have the fewest bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from grammar_patterns import WORDS, regular
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_cases import SPACE, allowed, schema_grammar

from palmette.runtime.grammar.automaton.grammar import AutomatonGrammar
from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.closing import spell
from palmette.runtime.grammar.compile import Compiler, GrammarSource
from palmette.runtime.grammar.protocol import Matcher, TokenSpace

COMPILER = Compiler(WORDS)


def regex(pattern: str) -> AutomatonGrammar:
    grammar = COMPILER.compile(GrammarSource(kind="regex", text=pattern))
    assert isinstance(grammar, AutomatonGrammar)
    return grammar


def close(matcher: Matcher, space: TokenSpace) -> bytes:
    """Follows the way to an end; returns its bytes."""
    way = matcher.closing()
    assert way is not None
    for token in way:
        assert matcher.accept(token)
    assert matcher.may_end
    return b"".join(space.vocabulary.pieces[token] for token in way)


@settings(max_examples=80, deadline=None)
@given(regular, st.randoms(use_true_random=False))
def test_automata_close_from_everywhere(pattern: str, chance: random.Random) -> None:
    matcher = regex(pattern).matcher()
    for _ in range(8):
        way = matcher.closing()
        assert way is not None
        assert (not way) == matcher.may_end
        data = close(matcher, WORDS)
        matcher.rollback(len(way))
        shortest = {matcher}
        tokens = [token for token in range(WORDS.end) if (piece := WORDS.vocabulary.pieces[token]) and len(piece) == 1]
        for _ in range(min(len(data), 3) - 1):  # brute force: no text of fewer bytes ends (three at most, for time)
            ahead = [m.copy() for m in shortest for _ in tokens]
            shortest = {m for m, token in zip(ahead, tokens * len(shortest), strict=True) if m.accept(token)}
            assert not any(m.may_end for m in shortest)
            shortest = set(list(shortest)[:20])
        following = [token for token in range(WORDS.end) if matcher.copy().accept(token)]
        if not following:
            break
        assert matcher.accept(chance.choice(following))


@pytest.mark.parametrize(
    ("pattern", "begun", "rest"),
    [
        (r"\d{4}-\d\d", "20", "00-00"),
        ("a*b|a{3}c", "", "b"),
        ("(red|green|dark green)", "d", "ark green"),
        ("é[^x]", "", "éa"),
        ("[a-z]+@[a-z]+[.](com|de)", "me", "@a.de"),
    ],
)
def test_the_text_is_short_and_readable(pattern: str, begun: str, rest: str) -> None:
    matcher = regex(pattern).matcher()
    for token in WORDS.encode(begun):
        assert matcher.accept(token)
    assert close(matcher, WORDS) == rest.encode()


def test_closing_inside_a_character() -> None:
    matcher = regex("[😀-😂]!").matcher()
    assert matcher.accept(0xF0)
    way = matcher.closing()
    assert way is not None
    data = b"\xf0" + close(matcher, WORDS)
    assert data.decode()[1:] == "!"


def test_bytes_are_spelled_by_what_there_is() -> None:
    trie = masks_of(WORDS).trie
    pieces = WORDS.vocabulary.pieces
    for data in (b"", b"abc", "é😀".encode(), "é".encode()[1:] + b"ab", b"a\xf0\x9f", b"\xff"):
        tokens = spell(data, WORDS, trie)
        assert tokens is not None
        assert b"".join(pieces[token] for token in tokens) == data
    assert spell(b"abba", WORDS, trie) == WORDS.encode("abba")


NODE = {
    "type": "object",
    "properties": {"v": {"type": "number"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
    "required": ["v", "next"],
}
TWO = {"a": {"type": "string", "minLength": 3}, "b": {"type": "integer"}}
SCHEMAS: list[Any] = [
    {"type": "object", "properties": TWO, "required": ["a", "b"]},
    {"type": "array", "items": {"type": "string", "format": "date"}, "minItems": 2},
    {"type": "object", "properties": {"mail": {"type": "string", "format": "email"}}, "required": ["mail"]},
    {"$defs": {"n": NODE}, "$ref": "#/$defs/n"},
    {"type": "string", "pattern": "^a*b[0-9]{3}$"},
    {"type": "integer", "minimum": 17, "maximum": 1234},
    {"type": "number", "exclusiveMinimum": 0.25, "maximum": 0.3},
    {"type": "string", "minLength": 40},
    {"enum": ["north", "south", {"a": [1, None]}]},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "boolean"}, "required": ["x"]},
    {"type": "object"},
    {"type": "string", "format": "uri"},
    True,
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:40])
def test_schemas_close_from_everywhere(schema: Any) -> None:
    grammar = schema_grammar(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for seed in range(4):
        chance = random.Random(seed)
        matcher = grammar.matcher()
        text = b""
        for _ in range(25):
            ending = matcher.copy()
            whole = text + close(ending, SPACE)
            assert validator.is_valid(json.loads(whole)), whole
            tokens = [token for token in allowed(matcher) if SPACE.vocabulary.pieces[token]]
            if not tokens:
                break
            token = chance.choice(tokens)
            assert matcher.accept(token)
            text += SPACE.vocabulary.pieces[token]


def test_recursive_grammars_and_tags_close() -> None:
    compiler = Compiler(SPACE)
    sums = compiler.compile(
        GrammarSource(kind="ebnf", text='root ::= sum\nsum ::= sum "+" atom | atom\natom ::= [0-9]+ | "(" sum ")"')
    )
    matcher = sums.matcher()
    for token in SPACE.encode("(1+(2+"):
        assert matcher.accept(token)
    assert close(matcher, SPACE) == b"0))"
    tags = compiler.compile(
        GrammarSource(
            kind="structural_tag",
            text='{"structures": [{"begin": "<f>", "end": "</f>", "schema": {"type": "array"}}]}',
        )
    )
    matcher = tags.matcher()
    for token in SPACE.encode("so <f>[1"):
        assert matcher.accept(token)
    assert close(matcher, SPACE) == b"]</f>"
    thoughts = compiler.compile(
        GrammarSource(kind="after_reasoning", text='{"end": "</t>", "grammar": {"kind": "regex", "text": "ab+"}}')
    )
    matcher = thoughts.matcher()
    for token in SPACE.encode("hm <"):
        assert matcher.accept(token)
    assert close(matcher, SPACE) == b"/t>ab"
