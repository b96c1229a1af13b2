"""Eviction policies that look at one node and no further: by time, count, segment, priority, age or cost.

Each is one small class with one method; programs.py and learned.py hold those that know more. Made by name in
registry.py; called by order only.
"""

from __future__ import annotations

from palmette.radix_cache.eviction.order import EvictionPolicy, Rank
from palmette.radix_cache.node import Node
from palmette.runtime.messages.tokens import TOKEN_BYTES

EXPIRED = -1.0  # below every time and count


class LRU(EvictionPolicy):
    """Least recently used first."""

    def rank(self, node: Node, now: float) -> Rank:
        return Rank(node.last_used)


class LFU(EvictionPolicy):
    """Least often used first; among equals least recently used."""

    def rank(self, node: Node, now: float) -> Rank:
        return Rank(node.uses, node.last_used)


class SLRU(EvictionPolicy):
    """Segmented LRU: what was never used again since it came goes before what was, each by recency."""

    def rank(self, node: Node, now: float) -> Rank:
        return Rank(node.uses > 0, node.last_used)


class Priority(EvictionPolicy):
    """Lowest priority first (`Node.priority`, set by requests); among equals least recently used."""

    def rank(self, node: Node, now: float) -> Rank:
        return Rank(node.priority, node.last_used)


class TTL(EvictionPolicy):
    """Least recently used first, as LRU; but what went unused for `seconds` goes before all, least used first.

    Nothing is given up before its pages are needed.
    """

    def __init__(self, seconds: float = 600.0) -> None:
        assert seconds > 0, f"a time to live of {seconds!r} s"
        self.seconds = seconds

    def rank(self, node: Node, now: float) -> Rank:
        end = node.last_used + self.seconds
        return Rank(1, node.last_used, end) if now < end else Rank(EXPIRED, node.uses)


class CostAware(EvictionPolicy):
    """GreedyDual-Size-Frequency: uses × recompute cost per page, above a floor that rises with what is given up.

    The cost of recomputing a token at position p is taken as 1 + p / `linear_tokens`: attention reads all before it.
    `linear_tokens` is where attention costs as much as the rest of the model. Cherkasova, "Improving WWW proxies
    performance with Greedy-Dual-Size-Frequency caching policy", 1998.
    """

    def __init__(self, linear_tokens: float = 8192.0) -> None:
        self.linear_tokens = linear_tokens
        self.floor = 0.0

    def rank(self, node: Node, now: float) -> Rank:
        start, length = _tokens_above(node), len(node.key) // TOKEN_BYTES
        cost = 1 + (start + length / 2) / self.linear_tokens
        return Rank(self.floor + (1 + node.uses) * cost, node.last_used)

    def chosen(self, rank: Rank) -> None:
        self.floor = max(self.floor, rank.worth)


def _tokens_above(node: Node) -> int:
    above, parent = 0, node.parent
    while parent is not None:
        above += len(parent.key)
        parent = parent.parent
    return above // TOKEN_BYTES
