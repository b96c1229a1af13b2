from __future__ import annotations

import random

import numpy as np
import pytest
from grammar_patterns import WORDS, regular, texts
from hypothesis import given, settings

from palmette.runtime.grammar.automaton.automaton import automaton
from palmette.runtime.grammar.automaton.masks import Masks, StateMasks, fill_masks
from palmette.runtime.grammar.automaton.masks_walk import quotient
from palmette.runtime.grammar.compile import Compiler, GrammarSource
from palmette.runtime.grammar.llg import matcher as llg
from palmette.runtime.grammar.protocol import Limits, mask_words
from palmette.runtime.grammar.regex.parser import parse
from palmette.runtime.vocabulary import Vocabulary

MASKS = Masks(WORDS.vocabulary)


def tokens_of(mask: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


@settings(max_examples=150, deadline=None)
@given(regular, texts)
def test_a_mask_is_what_brute_force_finds(pattern: str, text: str) -> None:
    built = automaton(parse(pattern), Limits())
    walked = StateMasks(MASKS, built, None)
    quotients = StateMasks(MASKS, built, quotient(MASKS.trie, built.alphabet))
    data = text.encode()
    at = built.start
    for stop in range(len(data) + 1):
        expected = {token for token, piece in enumerate(WORDS.vocabulary.pieces) if piece and built.walk(at, piece)}
        if built.final(at):
            expected.add(WORDS.end)
        assert tokens_of(walked.compute(at)) == expected
        assert tokens_of(quotients.compute(at)) == expected
        after = built.walk(at, data[stop : stop + 1])
        if after is None:
            break
        at = after


def test_masks_are_computed_once_and_bounded() -> None:
    masks = Masks(WORDS.vocabulary, cached_bytes=3 * (4 * mask_words(WORDS.vocabulary.size) + 400))
    built = automaton(parse("abcdef"), Limits())
    state_masks = masks.of(built)
    states = [built.start]
    for byte in b"abcd":
        after = built.walk(states[-1], bytes([byte]))
        assert after is not None
        states.append(after)
    first = state_masks.at(states[0])
    assert state_masks.at(states[0]) is first
    assert masks.computed == 1
    for state in states[1:3]:
        state_masks.at(state)
    state_masks.at(states[0])  # used again, so the next two push out the other two
    state_masks.at(states[3])
    state_masks.at(states[4])
    assert masks.computed == 5
    assert state_masks.at(states[0]) is first
    state_masks.at(states[1])
    assert masks.computed == 6
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_a_batch_is_filled_in_one_call() -> None:
    compiler = Compiler(WORDS)
    matchers = [
        compiler.compile(GrammarSource(kind="regex", text=text)).matcher() for text in ("a+", "[0-9]{2}", "é", "b?")
    ]
    words = mask_words(WORDS.vocabulary.size)
    together = np.full((4, words + 3), 0xFFFFFFFF, np.uint32)  # logits of more ids than the vocabulary has
    fill_masks(matchers, together)
    for row, matcher in zip(together, matchers, strict=True):
        alone = np.zeros(words, np.uint32)
        matcher.fill_mask(alone)
        assert (row[:words] == alone).all()
        assert not row[words:].any()


def test_a_large_vocabulary_of_any_bytes() -> None:
    chance = random.Random(0)
    pieces = [bytes(chance.choices(b"ab \xc3\xa9", k=chance.randint(0, 9))) for _ in range(3000)]
    vocabulary = Vocabulary(tuple(pieces), {}, ())
    built = automaton(parse("(?s)(a|é)(.*b)? *"), Limits())
    expected = {t for t, piece in enumerate(pieces) if piece and built.walk(built.start, piece)}
    assert tokens_of(Masks(vocabulary).of(built).at(built.start)) == expected
    assert len(expected) > 100


@pytest.mark.parametrize("threads", [False, True])
def test_masks_of_many_schemas_are_those_of_each_alone(threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that have ended, may only end, or can't go on, and into rows longer than the vocabulary."""
    monkeypatch.setattr(llg, "FEW_MASKS", 1 if threads else 1000)
    monkeypatch.setattr(llg, "FEW_THREADS", 1)
    compiler, chance = Compiler(WORDS), random.Random(4)
    kinds = [("json_schema", '{"type": "string", "maxLength": 9}'), ("json_schema", '{"const": 1}'),
             ("ebnf", 'root ::= "a" root | "b"')]  # fmt: skip
    words = mask_words(WORDS.vocabulary.size)
    matchers = [compiler.compile(GrammarSource(kind=kind, text=text)).matcher() for kind, text in kinds * 4]
    for step in range(6):
        together = np.full((len(matchers), words + step % 3), 0xFFFFFFFF, np.uint32)
        fill_masks(matchers, together)
        for row, matcher in zip(together, matchers, strict=True):
            alone = np.full(words + step % 3, 0xFFFFFFFF, np.uint32)
            matcher.fill_mask(alone)
            assert (row == alone).all()
            assert not row[words:].any()
            tokens = np.flatnonzero(np.unpackbits(alone.view(np.uint8), bitorder="little")).tolist()
            assert tokens or matcher.ended
            if tokens:
                assert matcher.accept(chance.choice(tokens))
    assert any(matcher.ended for matcher in matchers)


def test_a_matcher_that_breaks_allows_nothing_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text with ever more readings: the request's fault, not its batch's."""
    monkeypatch.setattr(llg, "SLOW", 0.001)
    monkeypatch.setattr(llg, "PATIENCE", 0.02)
    compiler = Compiler(WORDS)
    hopeless = compiler.compile(
        GrammarSource(kind="ebnf", text='root ::= root root | root root root | "a" | ""')
    ).matcher()
    other = compiler.compile(GrammarSource(kind="ebnf", text='root ::= "a" root | "b"')).matcher()
    letter = WORDS.vocabulary.pieces.index(b"a")
    for _ in range(2000):
        if not hopeless.accept(letter):
            break
    assert hopeless.broken is not None
    assert "many readings" in (hopeless.broken.hint or "")
    together = np.full((2, mask_words(WORDS.vocabulary.size)), 0xFFFFFFFF, np.uint32)
    fill_masks([hopeless, other], together)
    assert not together[0].any()
    assert together[1].any()
    assert other.broken is None
    assert (hopeless.may_end, hopeless.complete, hopeless.forced(), hopeless.closing()) == (False, False, [], None)
