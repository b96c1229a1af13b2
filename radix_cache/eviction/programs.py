"""The eviction policy that listens to programs: hints about a path's future, and another policy where there is none.

Hints are set by `RadixCache.hint`; who makes them is not known here. Called by order only.
"""

from __future__ import annotations

import math

from palmette.radix_cache.eviction.order import EvictionPolicy, Rank
from palmette.radix_cache.node import Node

KNOWN_NEEDED = math.inf  # above whatever the base policy thinks
KNOWN_DEAD = -math.inf


class ProgramAware(EvictionPolicy):
    """First goes what was used for the last time; then leaves without a hint, as `base` orders them; last those known
    to be needed, at their next use or when a tool answers: the one needed latest first.

    A time that has passed says nothing any more: the leaf is ordered by what else is known of it.
    """

    def __init__(self, base: EvictionPolicy) -> None:
        self.base = base
        self.learns = base.learns

    def rank(self, node: Node, now: float) -> Rank:
        hint = node.hint
        if hint is not None:
            coming = [at for at in (hint.next_use, hint.waits_until) if at is not None and at > now]
            if coming:
                needed = min(coming)
                return Rank(KNOWN_NEEDED, -needed, needed)
            if hint.last_use:
                return Rank(KNOWN_DEAD, node.last_used)
        return self.base.rank(node, now)

    def chosen(self, rank: Rank) -> None:
        if math.isfinite(rank.worth):
            self.base.chosen(rank)

    def used(self, node: Node, now: float) -> None:
        self.base.used(node, now)

    def added(self, node: Node, at: int, now: float) -> None:
        self.base.added(node, at, now)

    def trimmed(self, node: Node, at: int, now: float) -> None:
        self.base.trimmed(node, at, now)

    def split(self, upper: Node, lower: Node) -> None:
        self.base.split(upper, lower)

    def finished(self, node: Node, now: float) -> None:
        self.base.finished(node, now)

    def portion(self, node: Node) -> int:
        return self.base.portion(node)
