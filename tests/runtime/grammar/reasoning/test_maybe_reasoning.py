"""A grammar behind reasoning that the model may leave out: markers as special tokens and as text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import build
from palmette.runtime.grammar.protocol import Grammar, GrammarSource, Limits, Matcher, mask_words
from palmette.runtime.vocabulary import Vocabulary

EOS, BEGIN, END = 256, 257, 258
SPECIAL = {EOS: "<eos>", BEGIN: "<think>", END: "</think>"}
PIECES = (*(bytes([byte]) for byte in range(256)), b"", b"", b"", b"<th", b"ink>", b"<i>", b"ink>x", b"true")


class Tokens:
    vocabulary = Vocabulary(PIECES, SPECIAL, (EOS,))

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


TOKENS = Tokens()


def maybe(begin: str = "<think>", end: str = "</think>", **grammar: Any) -> Grammar:
    given = {"kind": "json_schema", "text": '{"type": "boolean"}', **grammar}
    text = json.dumps({"begin": begin, "end": end, "grammar": given})
    return build(GrammarSource(kind="after_reasoning", text=text), TOKENS, Limits())


def allowed(matcher: Matcher) -> set[int]:
    mask = np.zeros(mask_words(len(PIECES)), np.uint32)
    matcher.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return {int(token) for token in np.nonzero(bits)[0]}


def test_both_ways_are_open_until_the_first_token_shows_which() -> None:
    matcher = maybe().matcher()
    assert {BEGIN, ord("t"), ord("f"), PIECES.index(b"true"), ord("<"), PIECES.index(b"<th")} == allowed(matcher)
    assert matcher.forced() == []
    assert matcher.accept(BEGIN)
    assert matcher.accept(ord("x"))
    assert EOS not in allowed(matcher)
    assert matcher.accept(END)
    assert allowed(matcher) == {ord("t"), ord("f"), PIECES.index(b"true")}
    matcher.rollback(3)
    assert matcher.accept(PIECES.index(b"true"))
    assert matcher.may_end
    assert not matcher.accept(BEGIN)
    assert allowed(matcher) == {EOS}


def test_a_marker_in_several_tokens() -> None:
    matcher = maybe("<think>", "</end>").matcher()
    assert matcher.accept(PIECES.index(b"<th"))
    assert allowed(matcher) == {ord("i"), PIECES.index(b"ink>")}
    assert not matcher.accept(PIECES.index(b"ink>x"))  # its end would be thought
    assert matcher.accept(PIECES.index(b"ink>"))
    assert ord("<") in allowed(matcher)


def test_a_grammar_that_begins_like_the_marker() -> None:
    matcher = maybe(kind="regex", text="<i>b?").matcher()
    assert PIECES.index(b"<i>") in allowed(matcher)
    assert matcher.accept(ord("<"))
    assert allowed(matcher) == {ord("i"), ord("t")}
    fork = matcher.copy()
    assert matcher.accept(ord("i"))
    assert not matcher.accept(ord("n"))
    assert matcher.accept(ord(">"))
    assert matcher.may_end
    assert fork.accept(ord("t"))
    assert allowed(fork) == {ord("h")}
    assert not fork.may_end
    fork.rollback(2)
    assert allowed(fork) == allowed(maybe(kind="regex", text="<i>b?").matcher())
    with pytest.raises(ValueError, match="1"):
        fork.rollback(1)


def test_closing_leads_to_the_end() -> None:
    for tokens in ([], [BEGIN], [BEGIN, ord("x")], [ord("<"), ord("t")], [ord("t")]):
        matcher = maybe().matcher()
        for token in tokens:
            assert matcher.accept(token)
        closing = matcher.closing()
        assert closing is not None
        for token in closing:
            assert matcher.accept(token)
        assert matcher.may_end


@settings(max_examples=80)
@given(st.data())
def test_rollback_undoes_whatever_was_accepted(data: st.DataObject) -> None:
    matcher = maybe(kind="regex", text="<i>[a-c]*").matcher()
    masks = [allowed(matcher)]
    for _ in range(data.draw(st.integers(1, 10))):
        choices = sorted(masks[-1])
        if not choices:
            break
        assert matcher.accept(data.draw(st.sampled_from(choices)))
        masks.append(allowed(matcher))
    while len(masks) > 1:
        count = data.draw(st.integers(1, len(masks) - 1))
        matcher.rollback(count)
        del masks[-count:]
        assert allowed(matcher) == masks[-1]


def test_whole_texts() -> None:
    grammar = maybe()
    for text in ("true", "<think>hm</think>false", "<think></think>true"):
        assert grammar.accepts(text)
        assert grammar.explain(text).matches
    for text in ("", "<think>true", "hm</think>true", "<think>hm</think>", "x"):
        assert not grammar.accepts(text)
        assert not grammar.explain(text).matches
    with pytest.raises(GrammarError, match="begin"):
        maybe("")
