"""The two engines of regexes agree; and patterns that are too large for one are taken by the other."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from grammar_patterns import WORDS, regular, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import RuleText
from palmette.runtime.grammar.compile import ByteSpace, GrammarSource, compile
from palmette.runtime.grammar.llg.grammar import LlgGrammar
from palmette.runtime.grammar.protocol import mask_words
from palmette.runtime.grammar.regex.lark import lark_source
from palmette.runtime.grammar.regex.parser import parse

BYTES = ByteSpace()


@settings(max_examples=100, deadline=None)
@given(regular, st.lists(texts, max_size=6))
def test_llguidance_reads_it_as_we_do(pattern: str, samples: list[str]) -> None:
    lark = lark_source(parse(pattern))
    assert lark is not None
    grammar = LlgGrammar(GrammarSource(kind="regex", text=pattern), BYTES, RuleText(lark=lark))
    for text in samples:
        assert grammar.accepts(text) == bool(re.fullmatch(pattern, text)), (text, lark)


LARGE = [r".*a.{20}", r"[a-z]{0,1000}[a-z0-9]{0,1000}", r"([ab]*a[ab]{18})?c"]


@pytest.mark.parametrize("pattern", LARGE)
def test_a_large_pattern_is_taken(pattern: str) -> None:
    grammar = compile("regex", pattern)
    assert isinstance(grammar, LlgGrammar)
    assert grammar.source.text == pattern
    chance = random.Random(0)
    state = grammar.matcher()
    mask = np.zeros(mask_words(BYTES.vocabulary.size), np.uint32)
    data = b""
    for _ in range(200):
        state.fill_mask(mask)
        tokens = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        token = BYTES.END if BYTES.END in tokens and chance.random() < 0.5 else chance.choice(tokens)
        assert state.accept(token)
        if state.ended:
            assert re.fullmatch(pattern, data.decode())
            break
        data += bytes([token])


def test_what_neither_takes_is_refused() -> None:
    with pytest.raises(GrammarError, match="automaton"):
        compile("regex", r"(?=.*b).*a.{20}")


def test_parts_that_match_nothing_are_left_out() -> None:
    source = lark_source(parse(r"a[^\w\W]|b([^\w\W])*c"))
    assert source is not None
    grammar = LlgGrammar(GrammarSource(kind="regex", text=""), WORDS, RuleText(lark=source))
    assert grammar.accepts("bc")
    assert not grammar.accepts("a")
    assert lark_source(parse(r"[^\w\W]")) is None
