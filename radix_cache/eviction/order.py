"""The order in which cached leaves are given up: what a policy is, and one persistent lazy heap.

A policy says how much a leaf is worth keeping and how long that holds, or names the class that tells it; the order
keeps evictable leaves by that. It knows no pages, leases or requests. Called by tree only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from palmette.radix_cache.eviction.queues import Classes, Queues
from palmette.radix_cache.node import Node

SLACK = 64  # stale entries that are always tolerated
FOREVER = math.inf


class Rank(NamedTuple):
    """What a leaf is worth: compared by `worth`, then by `tie`; the lowest goes first.

    It is good until the clock reads `until`, or the leaf is used or changed; then the policy is asked again.
    """

    worth: float
    tie: float = 0.0
    until: float = FOREVER


class EvictionPolicy:
    """How much a leaf is worth keeping. A policy is `rank`; the rest is for those that learn from what happens.

    Times are those of the cache's clock, whatever its unit. A policy serves one cache: it may keep state.
    """

    learner: EvictionPolicy | None = None  # who is told of what happens: of all that is below `chosen`
    classes: Classes | None = None  # what leaves with a class are worth, where the policy has classes

    def rank(self, node: Node, now: float) -> Rank:
        """Asked when a leaf becomes evictable, and when its last rank's time is over."""
        raise NotImplementedError

    def class_of(self, node: Node, now: float) -> int | None:
        """Which class tells what the leaf is worth, until it is used or changed; None: its rank does."""
        return None

    def chosen(self, rank: Rank) -> None:
        """A leaf of this rank is about to be given up, whole or in part."""

    def portion(self, node: Node, spare: int) -> int:
        """How many of the leaf's `spare` last pages its rank is for; asked anew of the rest."""
        return spare

    def used(self, node: Node, now: float) -> None:
        """A match goes through the node; `last_used` and `uses` are still those before it."""

    def added(self, node: Node, at: int, now: float) -> None:
        """The node's key has new pages from byte `at` on."""

    def split(self, upper: Node, lower: Node) -> None:
        """The beginning of `lower`'s key has become `upper`, a new node above it; `lower` still has all of it."""

    def finished(self, node: Node, now: float, generated: int | None) -> None:
        """A request that ended at the node has let go of it and its path. `generated`: tokens of its answer, where
        known."""

    def trimmed(self, node: Node, at: int, now: float) -> None:
        """The node is about to lose its key from byte `at` on, all of it where that is 0."""

    def recounted(self, size: int) -> None:
        """Nodes have gone untold of, damaged ones: the tree holds `size` bytes of keys now."""


class EvictionOrder:
    """Evictable leaves, cheapest first: push and pop O(log n), nothing rebuilt per call.

    A leaf that is leased or removed is only marked (its ticket is taken); its entry is skipped when it comes up. Stale
    entries never outnumber live ones by more than SLACK: each compaction is paid for by the withdrawals before it.
    Ranks that end wait in a second heap by their end, and are found anew before the next leaf is chosen. Equal ranks
    leave in the order they came. Leaves with a class wait in queues, which are as many as there are classes.
    """

    def __init__(self, policy: EvictionPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self.policy = policy
        self.clock = clock
        self.live = 0
        self._heap: list[tuple[float, float, int, Node]] = []
        self._ends: list[tuple[float, int, Node]] = []
        self._queues: Queues[Node] | None = Queues(policy.classes) if policy.classes is not None else None
        self._tickets = count(1)
        self._stale = 0  # entries that have become stale since the last compaction, at least

    def __len__(self) -> int:
        """Leaves entered, stale entries too."""
        return len(self._heap) + (self._queues.entries // 2 if self._queues is not None else 0)

    def live_nodes(self) -> set[Node]:
        """The nodes that are entered. O(n): for invariants."""
        queued = self._queues.live() if self._queues is not None else []
        return set(queued) | {node for _, _, ticket, node in self._heap if ticket == node.ticket}

    def push(self, node: Node) -> None:
        """Enters the leaf as the policy sees it now; an earlier entry of it becomes stale."""
        self.withdraw(node)
        self.live += 1
        self._enter(node, self.clock())

    def withdraw(self, node: Node) -> None:
        """Takes the node's entry, where it has one, out of the order."""
        if node.ticket is None:
            return
        node.ticket = None
        self.live -= 1
        self._became_stale()

    def first(self, now: float | None = None) -> Node | None:
        """The leaf to give up next; it stays in the order until it is withdrawn. `now`: what the clock reads."""
        if now is None:
            now = self.clock()
        if self._ends:
            self._renew(now)
        heap = self._heap
        while heap and heap[0][2] != heap[0][3].ticket:
            heappop(heap)
        if self._queues is not None:
            queued = self._queues.first(now)
            if queued is not None and not (heap and heap[0][0] < self._queues.least):
                return queued
        if not heap:
            return None
        worth, tie, _, node = heap[0]
        self.policy.chosen(Rank(worth, tie))
        return node

    def clear(self) -> None:
        for _, _, _, node in self._heap:
            node.ticket = None
        self._heap.clear()
        self._ends.clear()
        if self._queues is not None:
            self._queues.clear()
        self.live = 0

    def _enter(self, node: Node, now: float) -> None:
        node.ticket = ticket = next(self._tickets)
        if self._queues is not None and (of := self.policy.class_of(node, now)) is not None:
            self._queues.push(of, node, ticket)
            return
        worth, tie, until = self.policy.rank(node, now)
        heappush(self._heap, (worth, tie, ticket, node))
        if until < FOREVER:
            assert until > now, f"a rank that ends at {until!r}, asked for at {now!r}"
            heappush(self._ends, (until, ticket, node))

    def _renew(self, now: float) -> None:
        """Finds the ranks anew whose time is over."""
        ends = self._ends
        while ends and ends[0][0] <= now:
            _, ticket, node = heappop(ends)
            if ticket == node.ticket:
                self._enter(node, now)
                self._became_stale()

    def _became_stale(self) -> None:
        self._stale += 1
        if self._stale > self.live + SLACK:
            self._stale = 0
            self._compact()

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2] == entry[3].ticket]
        heapify(self._heap)
        self._ends[:] = [end for end in self._ends if end[1] == end[2].ticket]
        heapify(self._ends)
        if self._queues is not None:
            self._queues.compact()
