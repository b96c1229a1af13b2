"""Leaves in a small number of queues, for policies under which only a leaf's class and its age tell what it is worth.

Within a class worth first rises with age, towards the time when a use is likeliest, then falls for good. So the least
worthy of a queue is at one of its ends: the newest or the oldest. Only ends are ever looked at; what a choice costs
depends on the number of classes, not on that of leaves. Knows no pages. Called by order and
duel.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
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


class _Run(Generic[L]):
    """Leaves in the order of their last use, with their tickets. None was used later than `newest`."""

    __slots__ = ("leaves", "newest", "tickets")

    def __init__(self) -> None:
        self.leaves: deque[L] = deque()
        self.tickets: deque[int] = deque()
        self.newest = -math.inf

    def entries(self) -> Iterator[tuple[L, int]]:
        return zip(self.leaves, self.tickets, strict=True)

    def compact(self) -> None:
        """Drops the stale entries."""
        live = [(leaf, ticket) for leaf, ticket in self.entries() if ticket == leaf.ticket]
        self.leaves = deque(leaf for leaf, _ in live)
        self.tickets = deque(ticket for _, ticket in live)
        self.newest = live[-1][0].last_used if live else -math.inf


class Queues(Generic[L]):
    """The least worthy leaf, O(log n) a leaf that comes or goes.

    An entry is a leaf and its ticket; it is stale once the leaf's ticket is another. Most leaves come in the order of
    their last use, and wait in a run whose two ends are at hand; those that come late, since something hung below
    them, wait in two heaps, by their last use. A run is two deques, side by side: a tuple an entry would be most of
    its memory.
    """

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._version = classes.version
        self._runs = [_Run[L]() for _ in range(classes.count)]
        # Two ends a class: at 2 × class the heap of its oldest latecomers, behind it that of its newest.
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
        self.entries = 0  # stale ones too; two a leaf, one of a run counting twice

    def push(self, of: int, leaf: L, ticket: int) -> None:
        used, run = leaf.last_used, self._runs[of]
        self.entries += 2
        if used >= run.newest or not run.leaves:
            run.newest = used
            run.leaves.append(leaf)
            run.tickets.append(ticket)
            self._changed.add(2 * of + 1)
            if len(run.leaves) == 1:
                self._changed.add(2 * of)
            return
        oldest, newest = self._heaps[2 * of], self._heaps[2 * of + 1]
        heappush(oldest, (used, ticket, leaf))
        heappush(newest, (-used, ticket, leaf))
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
            self._look_at_changed(now)
        order = self._order
        while order:
            worth, end = order[0]
            leaf = self._leaf[end]
            if leaf is None or worth != self._worth[end]:
                heappop(order)
            elif leaf.ticket == self._ticket[end]:
                self.least = worth
                return leaf
            else:  # it is gone: what stands behind it is worth no less
                heapreplace(order, (self._look(end, now), end))
        return None

    def live(self) -> list[L]:
        """O(n): for invariants."""
        waiting = [leaf for run in self._runs for leaf, ticket in run.entries() if ticket == leaf.ticket]
        return waiting + [leaf for heap in self._heaps[::2] for _, ticket, leaf in heap if ticket == leaf.ticket]

    def compact(self) -> None:
        """Drops the stale entries. O(n)."""
        for run in self._runs:
            run.compact()
        for heap in self._heaps:
            heap[:] = [entry for entry in heap if entry[1] == entry[2].ticket]
            heapify(heap)
        self.entries = 2 * sum(len(run.leaves) for run in self._runs) + sum(map(len, self._heaps))

    def clear(self) -> None:
        for leaf in self.live():
            leaf.ticket = None
        self.compact()

    def _look_at_changed(self, now: float) -> None:
        order = self._order
        for end in self._changed:
            known = self._worth[end]
            if self._look(end, now) != known:
                heappush(order, (self._worth[end], end))
        self._changed.clear()
        if len(order) > 4 * len(self._heaps):
            order[:] = [(worth, end) for end, worth in enumerate(self._worth) if self._leaf[end] is not None]
            heapify(order)

    def _look(self, end: int, now: float) -> float:
        """Finds the leaf at an end, and what it is worth; returns that."""
        found = self._at(end)
        if found is None:
            self._leaf[end], self._worth[end], self._until[end] = None, math.inf, math.inf
            return math.inf
        leaf, ticket = found
        worth, until = self._classes.worth(end >> 1, leaf.last_used, now)
        self._leaf[end], self._ticket[end], self._worth[end], self._until[end] = leaf, ticket, worth, until
        if until < self._soonest:
            self._soonest = until
        return worth

    def _at(self, end: int) -> tuple[L, int] | None:
        """The live entry at an end; stale ones before it go."""
        run, heap, newest = self._runs[end >> 1], self._heaps[end], end & 1
        leaves, tickets = run.leaves, run.tickets
        while leaves and tickets[-newest] != leaves[-newest].ticket:
            if newest:
                leaves.pop()
                tickets.pop()
            else:
                leaves.popleft()
                tickets.popleft()
            self.entries -= 2
        while heap and heap[0][1] != heap[0][2].ticket:
            heappop(heap)
            self.entries -= 1
        if heap and not (leaves and (heap[0][2].last_used < leaves[-newest].last_used) == newest):
            return heap[0][2], heap[0][1]
        return (leaves[-newest], tickets[-newest]) if leaves else None
