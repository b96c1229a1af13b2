"""Pins: cached prefixes that are evicted last, each for a while, all together at most a share of the pool.

A pin lies on a node and covers its path. It holds nothing: where only pinned pages are left to evict, those whose pin
expires soonest go. A pin whose node is evicted moves to the parent, whose tokens it covers too; it ends at the root,
when its time is over (noticed at the next eviction or pin), or when a new pin needs its room. Called by tree and cache.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from palmette.radix_cache.node import Node

SLACK = 64  # stale entries that are always tolerated


class Pins:
    """`node.pins` counts the pins at or below a node; `pages` are those of all nodes with a count.

    `capacity`: pages that pins may cover together.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.pages = 0
        self.expires: dict[Node, float] = {}
        self._order = count()
        self._times: list[tuple[float, int, Node]] = []  # every pin, soonest first
        self._leaves: list[tuple[float, int, Node]] = []  # pinned leaves that can be evicted, soonest first

    def __len__(self) -> int:
        return len(self.expires)

    # Pinning

    def uncovered(self, node: Node) -> int:
        """Pages that a pin on `node` would add to those that are covered."""
        return sum(len(step.pages) for step in node.path() if not step.pins)

    def put(self, node: Node, expires: float) -> None:
        """Pins the node, or sets the time of its pin."""
        if node not in self.expires:
            for step in node.path():
                if not step.pins:
                    self.pages += len(step.pages)
                step.pins += 1
        self._set(node, expires)

    def drop(self, node: Node) -> None:
        """Ends the node's pin."""
        del self.expires[node]
        self._uncover(node)

    def move_up(self, node: Node, parent: Node) -> None:
        """The pinned leaf `node` is being taken off `parent`, pages and all: its pin goes on there."""
        expires = self.expires.pop(node)
        if parent.parent is None:
            parent.pins -= 1
        elif parent in self.expires:
            self._uncover(parent)
            self._set(parent, max(expires, self.expires[parent]))
        else:
            self._set(parent, expires)

    def soonest(self) -> Node | None:
        """The node whose pin expires first."""
        times = self._times
        while times:
            expires, _, node = times[0]
            if self.expires.get(node) == expires:
                return node
            heappop(times)
        return None

    def expired(self, now: float) -> Node | None:
        """A node whose pin is over; it is still there until it is dropped."""
        node = self.soonest()
        return node if node is not None and self.expires[node] <= now else None

    # Evicting

    def offer(self, leaf: Node) -> None:
        """The pinned leaf can be evicted from now on. An entry is ignored while that isn't so."""
        heappush(self._leaves, (self.expires[leaf], next(self._order), leaf))
        if len(self._leaves) > 2 * len(self.expires) + SLACK:
            self._leaves = [(self.expires[node], next(self._order), node) for node in self.leaves()]
            heapify(self._leaves)

    def first(self) -> Node | None:
        """The pinned leaf to give up next."""
        leaves = self._leaves
        while leaves:
            expires, _, leaf = leaves[0]
            if self.expires.get(leaf) == expires and leaf.spare > 0 and not leaf.children:
                return leaf
            heappop(leaves)
        return None

    def leaves(self) -> set[Node]:
        """Pinned leaves that are entered and can be evicted. O(pins)."""
        return {
            node
            for expires, _, node in self._leaves
            if self.expires.get(node) == expires and node.spare > 0 and not node.children
        }

    # Starting anew

    def rebuild(self, nodes: set[Node]) -> None:
        """Counts anew after a quarantine: only pins on `nodes` (all that are in the tree) are left."""
        left = {node: expires for node, expires in self.expires.items() if node in nodes}
        self.pages = 0
        self.expires.clear()
        self._times.clear()
        self._leaves.clear()
        for node in nodes:
            node.pins = 0
        for node, expires in left.items():
            self.put(node, expires)

    def _set(self, node: Node, expires: float) -> None:
        self.expires[node] = expires
        heappush(self._times, (expires, next(self._order), node))
        if len(self._times) > 2 * len(self.expires) + SLACK:
            self._times = [(time, next(self._order), pinned) for pinned, time in self.expires.items()]
            heapify(self._times)

    def _uncover(self, node: Node) -> None:
        for step in node.path():
            step.pins -= 1
            if not step.pins:
                self.pages -= len(step.pages)
