from __future__ import annotations

import random

import numpy as np
import pytest
from grammar_patterns import WORDS, regular
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.grammar.automaton.jump import sole_token
from palmette.runtime.grammar.compile import Compiler, GrammarSource, TokenizerSpace
from palmette.runtime.grammar.protocol import mask_words
from palmette.runtime.text.load import load_tokenizer

TINY = TokenizerSpace(load_tokenizer(resolve("tiny")))


@settings(max_examples=100, deadline=None)
@given(regular, st.randoms(use_true_random=False))
def test_forced_bytes_start_every_continuation(pattern: str, chance: random.Random) -> None:
    state = Compiler(WORDS).compile(GrammarSource(kind="regex", text=pattern)).matcher()
    mask = np.zeros(mask_words(WORDS.vocabulary.size), np.uint32)
    for _ in range(12):
        forced = state.forced_bytes()
        tokens = state.forced()
        spelled = WORDS.vocabulary.text(tokens)
        assert forced.startswith(spelled)
        other = state.copy()
        data = b""
        while len(data) < len(forced):
            other.fill_mask(mask)
            choices = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
            token = chance.choice(choices)
            assert other.accept(token)
            data += WORDS.vocabulary.pieces[token]
        assert data.startswith(forced)
        assert all(map(state.accept, tokens))
        state.fill_mask(mask)
        choices = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        if not choices or not state.accept(chance.choice(choices)) or state.ended:
            break


CANONICAL = [
    ("The answer is ", "(yes|no)"), ('{"name": "', "[a-z ]*\"}"), ("Date:  ", "[0-9]{4}"), ("it'", "s?[a-z]*"),
    ("one two th", "(ree|row| in)"), ("x = ", "-?[0-9]+"), ("a\n\n", " *b"), ("été ", "[a-zé]+"), ("12", "[0-9]*"),
    ("the ", " *[a-z]+"), ("Hello, wor", "(ld|k)!"),
]  # fmt: skip


@pytest.mark.parametrize(("head", "tail"), CANONICAL)
def test_forced_tokens_are_those_of_every_whole_text(head: str, tail: str) -> None:
    escaped = "".join(f"\\u{ord(c):04x}" for c in head)
    grammar = Compiler(TINY).compile(GrammarSource(kind="regex", text=escaped + tail))
    forced = grammar.matcher().forced()
    chance = random.Random(0)
    for _ in range(30):
        state, data = grammar.matcher(), b""
        mask = np.zeros(mask_words(TINY.vocabulary.size), np.uint32)
        while len(data) < 60:
            state.fill_mask(mask)
            choices = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
            token = chance.choice(choices)
            assert state.accept(token)
            data += TINY.vocabulary.pieces[token]
            if state.ended:
                break
        whole = TINY.encode(data.decode(errors="ignore"))
        assert whole[: len(forced)] == forced, data


def test_a_text_without_choice_is_forced_to_its_end() -> None:
    text = "Everything here is certain."
    state = Compiler(TINY).compile(GrammarSource(kind="choices", text=f'["{text}"]')).matcher()
    assert state.forced() == TINY.encode(text)
    for token in state.forced():
        assert state.accept(token)
    assert state.complete
    assert state.forced() == []


def test_a_long_run_comes_in_parts_and_is_never_left() -> None:
    text = "All of this is certain. " * 100
    state = Compiler(TINY).compile(GrammarSource(kind="choices", text=f'["{text}"]')).matcher()
    data = b""
    while not state.complete:
        tokens = state.forced()
        assert tokens
        assert all(map(state.accept, tokens))
        data += TINY.vocabulary.text(tokens)
    assert data == text.encode()


def test_sole_token() -> None:
    mask = np.zeros(5, np.uint32)
    assert sole_token(mask) is None
    for token in (0, 31, 32, 159):
        mask[:] = 0
        mask[token // 32] = 1 << (token % 32)
        assert sole_token(mask) == token
    mask[0] = 1
    assert sole_token(mask) is None
    mask[:] = 0
    mask[1] = 3
    assert sole_token(mask) is None
