"""Log-probabilities of tokens, kept beside the nodes whose tokens they belong to, or stand behind.

The log-probability of a token given all before it depends on its path alone. That of a cached token lives and goes
with the node that holds it; that of a token which only might have come next, as a choice that was scored, with the node
that holds the token before it. Whoever asks again needn't compute the prompt again. float32, as computed. Called by
cache and tree.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence

from palmette.radix_cache.node import Node
from palmette.runtime.messages import tokens

UNKNOWN = array("f", [math.nan])
MOST_BESIDE = 1024  # tokens that might have come next, of one place; …
BESIDE_EACH = 4  # … and of a node that many, and these for each token: far less memory than its KV


class Scores:
    """Of one node. `own`: its tokens', NaN where unknown. `beside`: by the index of the token before, those of tokens
    that might come next; the place that was told of last is the last one."""

    __slots__ = ("_entries", "beside", "own")

    def __init__(self, own: array[float], beside: dict[int, dict[int, float]]) -> None:
        self.own = own
        self._put(beside)

    def _put(self, beside: dict[int, dict[int, float]]) -> None:
        self.beside = beside
        self._entries = sum(map(len, beside.values()))

    def grow(self, length: int) -> None:
        """The node has `length` tokens now: nothing is known of the new ones."""
        self.own += UNKNOWN * (length - len(self.own))

    def cut(self, at: int) -> Scores:
        """Takes off what belongs to the first `at` tokens, and returns it."""
        upper = Scores(self.own[:at], {index: known for index, known in self.beside.items() if index < at})
        self.own = self.own[at:]
        self._put({index - at: known for index, known in self.beside.items() if index >= at})
        return upper

    def trim(self, length: int) -> None:
        """Only the first `length` tokens are left."""
        del self.own[length:]
        self._put({index: known for index, known in self.beside.items() if index < length})

    def keep(self, first: int, values: Sequence[float]) -> None:
        """`values` belong to tokens from index `first` on. What is known already stays; NaN tells nothing."""
        for index, value in enumerate(values, first):
            if math.isnan(self.own[index]):
                self.own[index] = value

    def keep_beside(self, index: int, values: Mapping[int, float]) -> None:
        """`values`, by token, are those of tokens that might stand behind the one at `index`. Where that is too much,
        what was told longest ago goes."""
        known = self.beside.pop(index, {})
        self._entries -= len(known)
        if len(known) + len(values) > MOST_BESIDE:
            known.clear()
        known.update(values)
        while self.beside and self._entries + len(known) > MOST_BESIDE + BESIDE_EACH * len(self.own):
            self._entries -= len(self.beside.pop(next(iter(self.beside))))
        self.beside[index] = known
        self._entries += len(known)

    def known(self, first: int, end: int) -> array[float]:
        """Of the tokens from index `first` on, up to `end` or the first that is unknown."""
        values = self.own[first:end]
        for index, value in enumerate(values):
            if math.isnan(value):
                return values[:index]
        return values


def of(node: Node) -> Scores:
    """The node's, made where it has none."""
    if node.scores is None:
        node.scores = Scores(UNKNOWN * tokens.count(node.key), {})
    return node.scores


def adopt(node: Node, scores: Scores) -> None:
    """What was known of tokens that the node now begins with."""
    of(node).keep(0, scores.own)
    for index, values in scores.beside.items():
        of(node).keep_beside(index, values)


def known_along(node: Node, end: int, start: int) -> array[float]:
    """Values of the path's tokens from position `start` on, up to `end`, which lies in the node, or the first that is
    unknown."""
    found = array("f")
    for step, first, last, _ in _parts(node, end, start):
        part = step.scores.known(first, last) if step.scores is not None else array("f")
        found += part
        if len(part) < last - first:
            break
    return found


def keep_along(node: Node, end: int, start: int, values: Sequence[float]) -> None:
    """`values` belong to the path's tokens from position `start` on; those from `end` on, which lies in the node, are
    left out."""
    at = 0
    for step, first, last, _ in _parts(node, end, start):
        of(step).keep(first, values[at : at + last - first])
        at += last - first


def beside_along(node: Node, end: int, start: int) -> dict[int, Mapping[int, float]]:
    """By position, from `start` to `end`: what is known of tokens that might stand there behind the path's."""
    found: dict[int, Mapping[int, float]] = {}
    for step, first, last, begins in _parts(node, end, start - 1):
        if step.scores is not None:
            beside = step.scores.beside.items()
            found.update({begins + index + 1: known for index, known in beside if first <= index < last})
    return found


def keep_beside_along(node: Node, end: int, values: Mapping[int, Mapping[int, float]]) -> None:
    """`values`: by position and token. Those of positions that don't stand behind a token of the path are left out."""
    if not values:
        return
    for step, first, last, begins in _parts(node, end, min(values) - 1):
        for index in range(first, last):
            if (known := values.get(begins + index + 1)) is not None:
                of(step).keep_beside(index, known)


def _parts(node: Node, end: int, start: int) -> Iterator[tuple[Node, int, int, int]]:
    """Where the path's tokens from position `start` up to `end` lie: nodes, each with a range of its tokens, and the
    position of its first."""
    position = 0
    for step in reversed(list(node.path())):
        length = tokens.count(step.key)
        first, last = max(0, start - position), min(length, end - position)
        if first < last:
            yield step, first, last, position
        position += length
