"""The order in which cached leaves are given up: policies, and one persistent lazy heap.

A policy says how much a node is worth keeping; the order keeps evictable leaves by that. It knows no pages,
leases or requests. Called by tree only.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from palmette.radix_cache.node import Node

SLACK = 64  # stale entries that are always tolerated


class EvictionPolicy(Protocol):
    def priority(self, node: Node) -> float:
        """Lower goes first. Asked when a leaf becomes evictable; it holds until the leaf is used again."""
        ...


class LRU:
    """Least recently used first."""

    def priority(self, node: Node) -> float:
        return node.last_used


class EvictionOrder:
    """Evictable leaves, cheapest first: push and pop O(log n), nothing rebuilt per call.

    A leaf that is leased or removed is only marked (its ticket is taken); its entry is skipped when it
    comes up. Stale entries never outnumber live ones by more than SLACK: each compaction is paid for by the
    withdrawals before it. Equal priorities leave in the order they came.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        self.policy = policy
        self.live = 0
        self._heap: list[tuple[float, int, Node]] = []
        self._tickets = count(1)

    def __len__(self) -> int:
        """Entries in the heap, stale ones too."""
        return len(self._heap)

    def live_nodes(self) -> set[Node]:
        """The nodes that are entered. O(n): for invariants."""
        return {node for _, ticket, node in self._heap if ticket == node.ticket}

    def push(self, node: Node) -> None:
        """Enters the leaf at its present priority; an earlier entry of it becomes stale."""
        self.withdraw(node)
        node.ticket = next(self._tickets)
        self.live += 1
        heappush(self._heap, (self.policy.priority(node), node.ticket, node))

    def withdraw(self, node: Node) -> None:
        """Takes the node's entry, where it has one, out of the order."""
        if node.ticket is None:
            return
        node.ticket = None
        self.live -= 1
        if len(self._heap) > 2 * self.live + SLACK:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].ticket]
            heapify(self._heap)

    def first(self) -> Node | None:
        """The leaf to give up next; it stays in the order until it is withdrawn."""
        heap = self._heap
        while heap:
            _, ticket, node = heap[0]
            if ticket == node.ticket:
                return node
            heappop(heap)
        return None

    def clear(self) -> None:
        for _, _, node in self._heap:
            node.ticket = None
        self._heap.clear()
        self.live = 0
