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
        self.learner = base.learner
        self.classes = base.classes

    def rank(self, node: Node, now: float) -> Rank:
        return self._hinted(node, now) or self.base.rank(node, now)

    def class_of(self, node: Node, now: float) -> int | None:
        hinted = node.hint is not None and self._hinted(node, now) is not None
        return None if hinted else self.base.class_of(node, now)

    def _hinted(self, node: Node, now: float) -> Rank | None:
        hint = node.hint
        if hint is not None:
            coming = [at for at in (hint.next_use, hint.waits_until) if at is not None and at > now]
            if coming:
                needed = min(coming)
                return Rank(KNOWN_NEEDED, -needed, needed)
            if hint.last_use:
                return Rank(KNOWN_DEAD, node.last_used)
        return None

    def chosen(self, rank: Rank) -> None:
        if math.isfinite(rank.worth):
            self.base.chosen(rank)
