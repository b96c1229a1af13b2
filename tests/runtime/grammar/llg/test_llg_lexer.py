"""The lexer that the outputs of a grammar share comes to its bounds: that is the matter of whoever needed so much."""

from __future__ import annotations

import random

import pytest
from llguidance import LLParserLimits
from schema_cases import allowed, generate, schema_grammar

from palmette.runtime.grammar.llg import start as bounds
from palmette.runtime.grammar.llg.grammar import LlgGrammar
from palmette.runtime.grammar.llg.matcher import LlgMatcher
from palmette.runtime.grammar.protocol import Matcher

COSTLY = {"type": "string", "pattern": "^(?=.*a.{12}b)(?=.*c.{12}d)[a-e]*$"}
UNIQUE = {"type": "array", "uniqueItems": True, "items": COSTLY}


def follow(matcher: Matcher, text: bytes) -> int:
    """How many bytes of it are taken."""
    return next(
        (at for at, byte in enumerate(text) if byte not in allowed(matcher) or not matcher.accept(byte)), len(text)
    )


@pytest.fixture
def few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_LIMITS", LLParserLimits(max_lexer_states=400, verbose_errors=False))


def text(chance: random.Random, letters: int) -> bytes:
    return b'"' + bytes(chance.choices(b"abcde", k=letters))


@pytest.mark.usefixtures("few_states")
@pytest.mark.parametrize("schema", [COSTLY, UNIQUE])
def test_who_needs_too_much_fails_alone(schema: object) -> None:
    grammar = schema_grammar(schema)
    opening = b"[" * (schema is UNIQUE)
    begun = [grammar.matcher() for _ in range(4)]
    for matcher in begun:
        assert follow(matcher, opening + b'"ab') == len(opening) + 3
    hog = grammar.matcher()
    assert follow(hog, opening + text(random.Random(1), 2_000)) < 2_000
    assert hog.broken is not None
    assert "too many states" in hog.broken.message
    assert allowed(hog) == []
    fresh = schema_grammar(schema).matcher()
    assert follow(fresh, opening + b'"ab') == len(opening) + 3
    for matcher in (*begun, begun[0].copy()):
        assert allowed(matcher) == allowed(fresh)
        assert matcher.broken is None
        assert matcher.accept(ord("e"))
        matcher.rollback(2)
        assert matcher.accept(ord("b"))
        assert allowed(matcher) == allowed(fresh)
    later = grammar.matcher()
    assert follow(later, opening + b'"abe') == len(opening) + 4
    assert later.broken is None


@pytest.mark.usefixtures("few_states")
def test_outputs_of_a_grammar_have_room_for_ever() -> None:
    """Each of them comes to new states, all of them together to more than one lexer has."""
    grammar = schema_grammar(COSTLY)
    for seed in range(60):
        matcher = grammar.matcher()
        assert follow(matcher, text(random.Random(seed), 60)) == 61, seed
    assert isinstance(grammar, LlgGrammar)
    assert grammar._start._age > 0


def test_host_names_can_be_written() -> None:
    """Their patterns took more steps than a lexer was given; then nothing could be written any more."""
    grammar = schema_grammar({"type": "string", "format": "hostname"})
    for seed in range(300):
        matcher = grammar.matcher()
        assert isinstance(matcher, LlgMatcher)
        generate(matcher, random.Random(seed), 120)
        assert matcher.broken is None
