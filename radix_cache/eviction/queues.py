"""Leaves in a small number of queues, for policies under which only a leaf's class and its age tell what it is worth.

Within a class worth first rises with age, towards the time when a use is likeliest, then falls for good. So the least
worthy of a queue is at one of its ends: the newest or the oldest. Only ends are ever looked at; what a choice costs
depends on the number of classes, not on that of leaves. Knows no pages. Called by order and
duel.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, Protocol, TypeVar


class Leaf(Protocol):
    """What waits in a queue: a node, most often."""

    last_used: float
    ticket: int | None  # of its live entry, where it has one


L = TypeVar("L", bound=Leaf)


class Worth(NamedTuple):
    """What a leaf is worth, and up to when that holds."""

    value: float
    until: float


class Classes(Protocol):
    """What the leaves of each of a number of classes are worth by their last use: first rising with age, then falling.

    `version` changes whenever `worth` begins to answer otherwise.
    """

    count: int
    version: int

    def worth(self, of: int, used: float, now: float) -> Worth: ...


class Queues(Generic[L]):
    """The least worthy leaf, O(log n) a leaf that comes or goes.

    An entry is (last use, ticket, leaf); it is stale once the leaf's ticket is another.
    """

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._version = classes.version
        # Two ends a class: at 2 × class the heap of its oldest, behind it that of its newest.
        ends = 2 * classes.count
        self._heaps: list[list[tuple[float, int, L]]] = [[] for _ in range(ends)]
        # Of each end: its leaf when last looked at, the leaf's ticket and worth, and how long that holds.
        self._leaf: list[L | None] = [None] * ends
        self._ticket = [0] * ends
        self._worth = [math.inf] * ends
        self._until = [math.inf] * ends
        self._soonest = math.inf  # no `_until` is sooner
        self._changed: set[int] = set()
        self._order: list[tuple[float, int]] = []  # heap of worth and end; stale where the worth is another
        self.least = math.inf
        self.entries = 0  # stale ones too; two a leaf

    def push(self, of: int, leaf: L, ticket: int) -> None:
        used, oldest, newest = leaf.last_used, self._heaps[2 * of], self._heaps[2 * of + 1]
        heappush(oldest, (used, ticket, leaf))
        heappush(newest, (-used, ticket, leaf))
        self.entries += 2
        if oldest[0][1] == ticket:
            self._changed.add(2 * of)
        if newest[0][1] == ticket:
            self._changed.add(2 * of + 1)

    def first(self, now: float) -> L | None:
        """The leaf that is worth least now, which is `least`; it stays until its ticket is another."""
        if self._version != self._classes.version:
            self._version = self._classes.version
            self._changed.update(range(len(self._heaps)))
        if self._soonest <= now:
            self._changed.update([end for end, until in enumerate(self._until) if until <= now])
            self._soonest = min([until for until in self._until if until > now], default=math.inf)
        if self._changed:
            for end in self._changed:
                self._look(end, now)
            self._changed.clear()
            if len(self._order) > 4 * len(self._heaps):
                self._order = [(worth, end) for end, worth in enumerate(self._worth) if worth < math.inf]
                heapify(self._order)
        order = self._order
        while order:
            worth, end = order[0]
            leaf = self._leaf[end]
            if worth == self._worth[end] and leaf is not None:
                if leaf.ticket == self._ticket[end]:
                    self.least = worth
                    return leaf
                self._look(end, now)  # it is gone: what stands behind it is worth no less
            if order[0] == (worth, end) and self._worth[end] != worth:
                heappop(order)
        return None

    def live(self) -> list[L]:
        """O(n): for invariants."""
        return [leaf for heap in self._heaps[::2] for _, ticket, leaf in heap if ticket == leaf.ticket]

    def compact(self) -> None:
        """Drops the stale entries. O(n)."""
        for heap in self._heaps:
            heap[:] = [entry for entry in heap if entry[1] == entry[2].ticket]
            heapify(heap)
        self.entries = sum(map(len, self._heaps))

    def clear(self) -> None:
        for leaf in self.live():
            leaf.ticket = None
        self.compact()

    def _look(self, end: int, now: float) -> None:
        """Finds the leaf at an end, and what it is worth."""
        heap = self._heaps[end]
        while heap:
            _, ticket, leaf = heap[0]
            if ticket == leaf.ticket:
                worth, until = self._classes.worth(end >> 1, leaf.last_used, now)
                if worth != self._worth[end]:
                    heappush(self._order, (worth, end))
                self._leaf[end], self._ticket[end], self._worth[end], self._until[end] = leaf, ticket, worth, until
                if until < self._soonest:
                    self._soonest = until
                return
            heappop(heap)
            self.entries -= 1
        self._leaf[end], self._worth[end], self._until[end] = None, math.inf, math.inf
