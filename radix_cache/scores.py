"""Log-probabilities of tokens, kept beside the nodes whose tokens they belong to.

The log-probability of a token given all before it depends on its path alone, so it lives and goes with the node that
holds the token; whoever asks for a cached prompt's log-probabilities needn't compute the prompt again. float32, as
computed; NaN where unknown. Called by cache and tree.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from palmette.radix_cache.node import Node
from palmette.runtime.messages import tokens

UNKNOWN = array("f", [math.nan])


def grow(node: Node) -> None:
    """The node's key became longer: nothing is known of the new tokens."""
    if node.scores is not None:
        node.scores += UNKNOWN * (tokens.count(node.key) - len(node.scores))


def keep(node: Node, first: int, values: Sequence[float]) -> None:
    """`values` belong to the node's tokens from index `first` on. What is known already stays; NaN tells nothing."""
    if not len(values):
        return
    if node.scores is None:
        node.scores = UNKNOWN * tokens.count(node.key)
    scores = node.scores
    for index, value in enumerate(values, first):
        if math.isnan(scores[index]):
            scores[index] = value


def known(node: Node, first: int, end: int) -> array[float]:
    """Values of the node's tokens from index `first` on, up to `end` or the first that is unknown."""
    if node.scores is None:
        return array("f")
    values = node.scores[first:end]
    for index, value in enumerate(values):
        if math.isnan(value):
            return values[:index]
    return values


def known_along(node: Node, end: int, start: int) -> array[float]:
    """Values of the path's tokens from position `start` on, up to `end`, which lies in the node, or the first that is
    unknown."""
    found = array("f")
    for step, first, last in _parts(node, end, start):
        part = known(step, first, last)
        found += part
        if len(part) < last - first:
            break
    return found


def keep_along(node: Node, end: int, start: int, values: Sequence[float]) -> None:
    """`values` belong to the path's tokens from position `start` on; those from `end` on, which lies in the node, are
    left out."""
    at = 0
    for step, first, last in _parts(node, end, start):
        keep(step, first, values[at : at + last - first])
        at += last - first


def _parts(node: Node, end: int, start: int) -> list[tuple[Node, int, int]]:
    """Where the path's tokens from position `start` up to `end` lie: nodes, each with a range of its tokens."""
    parts: list[tuple[Node, int, int]] = []
    position = 0
    for step in reversed(list(node.path())):
        length = tokens.count(step.key)
        first, last = max(0, start - position), min(length, end - position)
        if first < last:
            parts.append((step, first, last))
        position += length
    return parts
