from __future__ import annotations

import random
import re

import numpy as np
import pytest
from grammar_patterns import WORDS, regular
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from palmette.runtime.grammar.compile import Compiler, GrammarSource, compile
from palmette.runtime.grammar.protocol import Matcher, mask_words

COMPILER = Compiler(WORDS)


def matcher(pattern: str) -> Matcher:
    return COMPILER.compile(GrammarSource(kind="regex", text=pattern)).matcher()


def allowed(state: Matcher) -> list[int]:
    mask = np.zeros(mask_words(WORDS.vocabulary.size), np.uint32)
    state.fill_mask(mask)
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


@settings(max_examples=100, deadline=None)
@given(regular, st.data(), st.randoms(use_true_random=False))
def test_every_tokenisation_of_a_text_is_accepted(pattern: str, data: st.DataObject, chance: random.Random) -> None:
    text = data.draw(st.from_regex(pattern, fullmatch=True))
    assume(not re.search("[\ud800-\udfff]", text))
    state = matcher(pattern)
    for token in WORDS.tokenisation(text, chance):
        assert token in allowed(state)
        assert state.accept(token)
    assert state.may_end
    assert WORDS.end in allowed(state)
    assert state.accept(WORDS.end)
    assert state.ended
    assert allowed(state) == []


@settings(max_examples=100, deadline=None)
@given(regular, st.randoms(use_true_random=False))
def test_what_masks_allow_always_ends_in_a_match(pattern: str, chance: random.Random) -> None:
    state = matcher(pattern)
    data = b""
    for _ in range(60):
        tokens = allowed(state)
        assert tokens
        token = WORDS.end if WORDS.end in tokens and chance.random() < 0.3 else chance.choice(tokens)
        assert state.accept(token)
        data += WORDS.vocabulary.pieces[token]
        if state.ended:
            assert re.fullmatch(pattern, data.decode())
            return


@settings(max_examples=60, deadline=None)
@given(regular, st.randoms(use_true_random=False))
def test_rollback_and_copies(pattern: str, chance: random.Random) -> None:
    state = matcher(pattern)
    history = [allowed(state)]
    copies = [state.copy()]
    for _ in range(8):
        if not history[-1]:
            break
        assert state.accept(chance.choice(history[-1]))
        history.append(allowed(state))
        copies.append(state.copy())
    count = chance.randint(0, len(history) - 1)
    state.rollback(count)
    assert allowed(state) == history[-1 - count]
    assert [allowed(copy) for copy in copies] == history
    copies[-1].rollback(len(history) - 1)
    assert allowed(copies[-1]) == history[0]


def test_a_refused_token_changes_nothing() -> None:
    state = matcher("ab")
    for token in (ord("b"), WORDS.end, WORDS.end + 1, -1, 10**6):
        assert not state.accept(token)
    assert state.accept(ord("a"))
    with pytest.raises(ValueError, match="2"):
        state.rollback(2)
    state.rollback(1)
    assert state.forced_bytes() == b"ab"


def test_complete_is_where_nothing_may_follow() -> None:
    state = matcher("ab?")
    state.accept(ord("a"))
    assert state.may_end
    assert not state.complete
    state.accept(ord("b"))
    assert state.complete
    assert allowed(state) == [WORDS.end]
    state.accept(WORDS.end)
    assert not state.complete
    state.rollback(1)
    assert state.complete


def test_explain() -> None:
    grammar = compile("regex", r"[0-9]{4}-[0-9]{2}")
    assert grammar.accepts("2024-05")
    assert grammar.explain("2024-05").matches
    wrong = grammar.explain("2024/05")
    assert (wrong.matches, wrong.position, wrong.possible) == (False, 4, "'-'")
    short = grammar.explain("2024-0")
    assert (short.matches, short.position, short.possible) == (False, 6, "'0'-'9'")
    assert "incomplete" in short.message
    assert compile("regex", "a[^xy]*").explain("ax").possible == "any character but 'x'-'y' or the end of the text"
