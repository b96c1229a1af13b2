"""Items that must differ, over a vocabulary whose tokens join signs of JSON; and what many items cost."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.grammar.compile import ByteSpace, build
from palmette.runtime.grammar.distinct import matcher as distinct_matcher
from palmette.runtime.grammar.distinct.items import Items, no_items
from palmette.runtime.grammar.protocol import GrammarSource, Limits, Matcher, mask_words
from palmette.runtime.vocabulary import Vocabulary


class JoinedSpace(ByteSpace):
    """Bytes, and tokens that lie across the ends of items."""

    JOINED = (b' "', b'",', b'["', b'", "', b"], [", b', "n0', b"12", b'"]')

    def __init__(self) -> None:
        super().__init__()
        plain = self.vocabulary
        self.vocabulary = Vocabulary((*plain.pieces, *self.JOINED), plain.special_pieces, plain.eos_ids)

    def encode(self, text: str) -> list[int]:
        data, tokens = text.encode(), []
        while data:
            joined = [number for number, piece in enumerate(self.JOINED) if data.startswith(piece)]
            best = max(joined, key=lambda number: len(self.JOINED[number]), default=None)
            tokens.append(data[0] if best is None else 257 + best)
            data = data[len(self.vocabulary.pieces[tokens[-1]]) :]
        return tokens


SPACE = JoinedSpace()


def matcher(items: Any) -> Matcher:
    schema = {"type": "array", "items": items, "uniqueItems": True}
    return build(GrammarSource(kind="json_schema", text=json.dumps(schema)), SPACE, Limits()).matcher()


def follow(at: Matcher, tokens: list[int]) -> float:
    """Accepts them all, each of which the mask must allow. CPU seconds of the slowest."""
    mask, slowest = np.zeros(mask_words(SPACE.vocabulary.size), np.uint32), 0.0
    for token in tokens:
        begun = time.thread_time()
        at.fill_mask(mask)
        assert mask[token >> 5] >> (token & 31) & 1, SPACE.vocabulary.pieces[token]
        assert at.accept(token)
        slowest = max(slowest, time.thread_time() - begun)
    return slowest


def test_what_differs_can_be_written_in_joined_tokens() -> None:
    for items, value in (
        ({"type": "string", "pattern": "^[a-z0-9]{3,8}$"}, ["n00123", "n00456", "abc"]),
        ({"type": "string", "minLength": 3, "maxLength": 5}, ["n0 1", "12,1", "[1]"]),
        ({"type": "integer"}, [1, 12, 2]),
    ):
        at = matcher(items)
        follow(at, SPACE.encode(json.dumps(value)))
        assert at.may_end


def test_a_thousand_items_cost_no_more_than_a_few() -> None:
    chance = random.Random(1)
    numbers = chance.sample(range(100_000), 1_000)
    for items, values in (
        ({"type": "integer"}, numbers),
        ({"type": "string", "pattern": "^n[0-9]{5}$"}, [f"n{number:05d}" for number in numbers]),
    ):
        at = matcher(items)
        tokens = SPACE.encode(json.dumps(values))
        few = len(tokens) // 20
        begun = time.thread_time()
        follow(at, tokens[:few])
        early = time.thread_time() - begun
        follow(at, tokens[few:-few])
        begun = time.thread_time()
        follow(at, tokens[-few:])
        assert time.thread_time() - begun < 4 * early + 0.05


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 3), st.text(alphabet="ab", max_size=3)), max_size=12))
def test_items_are_those_of_their_own_history(steps: list[tuple[int, str]]) -> None:
    """Whatever forks and goes back share."""
    histories: list[tuple[Items, list[str]]] = [(no_items(), [])]
    for choice, text in steps:
        items, known = histories[choice % len(histories)]
        added = items.added(text, (text.encode(),))
        histories.append((added.settled() if choice % 2 else added, [*known, text]))
    for items, known in histories:
        for text in ("", "a", "b", "ab", "aba"):
            assert items.has(text) == (text in known)
            rests = items.rests(text.encode())
            going = {each[len(text)] for each in known if each.startswith(text) and len(each) > len(text)}
            assert {chr(byte) for byte in rests.firsts()} == going
            assert bool(rests) == bool(going)
            assert rests.ends == (text in known)


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct_matcher, "SLOW", -1.0)
    monkeypatch.setattr(distinct_matcher, "PATIENCE", 1e-4)
    at = matcher({"type": "integer"})
    mask = np.zeros(mask_words(SPACE.vocabulary.size), np.uint32)
    for token in SPACE.encode("[1, 2, 3, 4, 5"):
        at.fill_mask(mask)
        if at.broken is not None:
            break
        assert at.accept(token)
    assert at.broken is not None
    assert "too long to hold apart" in at.broken.message
    assert not mask.any()
