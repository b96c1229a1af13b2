from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import build
from palmette.runtime.grammar.protocol import Grammar, GrammarSource, Limits, mask_words
from palmette.runtime.vocabulary import Vocabulary

EOS, THINK = 256, 257
PIECES = (*(bytes([byte]) for byte in range(256)), b"", b"", b"ok</e", b"</end>", b"nd>tr", b"x</end>t", b"</end>tr")


class Tokens:
    vocabulary = Vocabulary(PIECES, {EOS: "<eos>", THINK: "</think>"}, (EOS,))

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


TOKENS = Tokens()


def after(end: str, **grammar: Any) -> Grammar:
    given = {"kind": "json_schema", "text": '{"type": "boolean"}', **grammar}
    text = json.dumps({"end": end, "grammar": given})
    return build(GrammarSource(kind="after_reasoning", text=text), TOKENS, Limits())


def allowed(matcher: Any) -> set[int]:
    mask = np.zeros(mask_words(len(PIECES)), np.uint32)
    matcher.fill_mask(mask)
    return {int(token) for token in np.nonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))[0]}


def test_the_marker_as_a_special_token() -> None:
    matcher = after("</think>").matcher()
    assert EOS not in allowed(matcher)
    assert not matcher.may_end
    for token in (*b"hm </", THINK):
        assert matcher.accept(token)
    assert allowed(matcher) == {ord("t"), ord("f")}
    for token in b"true":
        assert matcher.accept(token)
    assert matcher.may_end
    matcher.rollback(5)
    assert THINK in allowed(matcher)
    assert matcher.accept(ord("x"))


def test_the_marker_as_text_ends_with_its_token() -> None:
    matcher = after("</end>").matcher()
    assert matcher.accept(PIECES.index(b"ok</e"))
    assert PIECES.index(b"nd>tr") not in allowed(matcher)
    assert not matcher.accept(PIECES.index(b"nd>tr"))
    assert {PIECES.index(b"x</end>t"), PIECES.index(b"</end>tr")}.isdisjoint(allowed(matcher))
    for token in b"nd>":
        assert matcher.accept(token)
    assert matcher.accept(ord("t"))
    assert matcher.forced_bytes() == b"rue"
    fork = matcher.copy()
    matcher.rollback(2)
    assert matcher.forced_bytes() == b""
    assert fork.forced_bytes() == b"rue"


@given(st.lists(st.sampled_from(["<", "/", "end>", "</end>", "a", "true", "false"]), max_size=6).map("".join))
def test_texts(text: str) -> None:
    grammar = after("</end>")
    _, found, rest = text.partition("</end>")
    right = bool(found) and rest in ("true", "false")
    assert grammar.accepts(text) == right
    assert grammar.explain(text).matches == right
    matcher = grammar.matcher()
    assert (all(matcher.accept(byte) for byte in text.encode()) and matcher.may_end) == right


def test_errors() -> None:
    for end, grammar in (
        ("", {}),
        ("x", {"kind": "nothing"}),
        ("x", {"text": "{"}),
        ("x", {"kind": "after_reasoning"}),
    ):
        with pytest.raises(GrammarError):
            after(end, **grammar)
