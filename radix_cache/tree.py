"""The radix tree: where nodes hang, who locks them, and which leaf goes next.

Page-aligned: an edge is a whole number of pages (a partial leaf: one page, not full); nodes split at page
boundaries; the pages of a node never change hands while a lease lies on it. One root per namespace. It
knows nothing of the page pool or of requests: removed pages are handed to its only caller, cache.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from palmette.radix_cache.eviction import EvictionOrder
from palmette.radix_cache.key import common_tokens
from palmette.radix_cache.node import Node, Root
from palmette.runtime.messages.tokens import TOKEN_BYTES


class Step(NamedTuple):
    """One edge further down: the child that shares the next full page, and how many tokens it shares."""

    child: Node
    tokens: int


class BestTail(NamedTuple):
    """The child whose first page agrees longest with what follows a match, and in how many tokens."""

    child: Node
    tokens: int


class RadixTree:
    """Costs depend on the depth of a path and the length of a key, never on the number of nodes.

    Counts kept: `evictable` pages (held by no lease), `page_count` pages in all, `node_count` nodes without
    roots.
    """

    def __init__(self, page_size: int, order: EvictionOrder, clock: Callable[[], float]) -> None:
        self.page_size = page_size
        self.page_bytes = page_size * TOKEN_BYTES
        self.order = order
        self.clock = clock
        self.roots: dict[str, Root] = {}
        self.evictable = 0
        self.page_count = 0
        self.node_count = 0

    def nodes(self) -> Iterator[Node]:
        """Every node, roots too, parents before children."""
        for root in self.roots.values():
            yield from root.subtree()

    # Reading

    def root(self, namespace: str) -> Root:
        """The namespace's root, made where it is missing; it vanishes with its last child and lease."""
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Root(namespace, self.clock())
        return root

    def follow(self, node: Node, key: bytes, at: int) -> Step | None:
        """The step from `node` along `key` from byte `at`; None where no child shares a full page."""
        page = key[at : at + self.page_bytes]
        if len(page) < self.page_bytes:
            return None
        child = node.children.starting_with(page)
        return None if child is None else Step(child, common_tokens(child.key, key, at))

    def best_tail(self, node: Node, key: bytes, at: int) -> BestTail | None:
        """Where `follow` ends: the child that agrees longest with `key` from byte `at`, found by bisection.

        The longest common run with any of an ordered set is with one of the two neighbours; flooring runs
        to whole tokens is monotone, so that holds for tokens too.
        """
        part = key[at : at + self.page_bytes]
        if not part:
            return None
        before, after = node.children.neighbours(part)
        shared_before = common_tokens(part, before.key) if before is not None else 0
        shared_after = common_tokens(part, after.key) if after is not None else 0
        if after is not None and shared_after >= max(shared_before, 1):
            return BestTail(after, shared_after)
        if before is not None and shared_before:
            return BestTail(before, shared_before)
        return None

    # Growing

    def split(self, node: Node, pages: int) -> Node:
        """Cuts the first `pages` pages off into a new parent of `node`, and returns that.

        `node` stays the lower part, so the leases that end at it stay right. Whoever copies from its first
        page now finds that page in the upper part.
        """
        assert 0 < pages < len(node.pages), f"split at page {pages} of {len(node.pages)}"
        parent = node.parent
        assert parent is not None, "a root has no pages to split"
        cut = pages * self.page_bytes
        upper = Node(node.key[:cut], node.pages[:pages], parent, node.last_used)
        upper.leases, upper.uses, upper.tails = node.leases, node.uses, node.tails
        parent.children.replace(node, upper)
        node.key, node.pages, node.parent, node.tails = node.key[cut:], node.pages[pages:], upper, 0
        upper.children.add(node)
        self.node_count += 1
        return upper

    def add(self, parent: Node, key: bytes, pages: array[int], *, leases: int) -> Node:
        """Hangs a new leaf below `parent`, which is leased."""
        assert parent.leases >= leases, "a path is leased from its root on"
        node = Node(key, pages, parent, self.clock())
        node.leases = leases
        parent.children.add(node)
        self.node_count += 1
        self.page_count += len(pages)
        self.evictable += node.spare
        self._offer(node)
        return node

    def extend(self, leaf: Node, key: bytes, pages: array[int]) -> None:
        """Appends whole pages to a leased leaf in place, so that a growing sequence stays one node."""
        assert leaf.leases > 0, "only a leased node grows in place"
        assert not leaf.children, "only a leaf grows in place"
        assert leaf.parent is not None, "a root has no pages"
        leaf.key += key
        leaf.pages += pages
        self.page_count += len(pages)

    # Locking

    def lock_path(self, node: Node) -> None:
        """One lease more on the node and all above it: they are used once more, now."""
        now = self.clock()
        for step in node.path():
            self.lock(step)
            step.last_used = now
            step.uses += 1

    def lock(self, node: Node) -> None:
        """One lease more on this node alone: its parent is on the lease's path already."""
        if node.leases == 0:
            self.evictable -= node.spare
            self.order.withdraw(node)
        node.leases += 1

    def unlock_path(self, node: Node) -> None:
        """One lease less on the node and all above it; they count as used now."""
        now = self.clock()
        for step in node.path():
            step.last_used = now
            self._unlock(step)
        self._offer(node)
        self._forget_empty(step)

    def lock_tail(self, node: Node) -> None:
        """Someone copies from the node's first page: that page stays; the others may go."""
        before = node.spare
        node.tails += 1
        node.last_used = self.clock()
        self.evictable += node.spare - before
        self.order.withdraw(node)
        self._offer(node)

    def unlock_tail(self, node: Node) -> None:
        assert node.tails > 0, "a tail is given up once"
        before = node.spare
        node.tails -= 1
        self.evictable += node.spare - before
        if node.ticket is None:
            self._offer(node)

    # Shrinking

    def evict(self, pages: int) -> list[int]:
        """Gives up `pages` evictable pages, cheapest leaves first, from their ends. Returns them."""
        assert pages <= self.evictable, f"{pages} pages to evict of {self.evictable} evictable"
        gone: list[int] = []
        while len(gone) < pages:
            leaf = self.order.first()
            assert leaf is not None, "evictable pages without an evictable leaf"
            gone += self._trim(leaf, min(pages - len(gone), leaf.spare))
        return gone

    def prune_prefix(self, parent: Node, key: bytes) -> list[int]:
        """Removes the partial leaf whose tokens a child with `key` now repeats, unless it is in use."""
        before = parent.children.neighbours(key[: self.page_bytes]).before
        if before is None or before.tails or before.leases or not key.startswith(before.key):
            return []
        assert self.is_partial(before), "siblings never share a full first page"
        return self._trim(before, len(before.pages))

    def is_partial(self, node: Node) -> bool:
        return len(node.key) < len(node.pages) * self.page_bytes

    def detach(self, node: Node) -> list[Node]:
        """Takes the subtree off as it is, leases and all, and returns its nodes. `recount` must follow."""
        if isinstance(node, Root):
            del self.roots[node.namespace]
        elif node.parent is not None:
            node.parent.children.discard(node)
        return list(node.subtree())

    def recount(self) -> None:
        """Sums up counts and order anew from the nodes and their leases. O(nodes): for quarantine only."""
        self.order.clear()
        self.evictable = self.page_count = self.node_count = 0
        for node in list(self.nodes()):
            self.evictable += node.spare
            self.page_count += len(node.pages)
            self.node_count += node.parent is not None
            self._offer(node)
        for root in list(self.roots.values()):
            self._forget_empty(root)

    def _trim(self, leaf: Node, pages: int) -> list[int]:
        """Takes `pages` pages off the end of an evictable leaf; the leaf goes with its last page."""
        kept = len(leaf.pages) - pages
        gone = leaf.pages[kept:].tolist()
        self.page_count -= pages
        self.evictable -= pages
        if kept:
            leaf.key, leaf.pages = leaf.key[: kept * self.page_bytes], leaf.pages[:kept]
            if not leaf.spare:
                self.order.withdraw(leaf)
            return gone
        parent = leaf.parent
        assert parent is not None
        self.order.withdraw(leaf)
        parent.children.remove(leaf)
        self.node_count -= 1
        self._offer(parent)
        self._forget_empty(parent)
        return gone

    def _unlock(self, node: Node) -> None:
        assert node.leases > 0, "a lease is released once"
        node.leases -= 1
        if node.leases == 0:
            self.evictable += node.spare

    def _offer(self, node: Node) -> None:
        """Enters the node into the eviction order where it is a leaf with pages to give."""
        if not node.children and node.spare > 0:
            self.order.push(node)

    def _forget_empty(self, node: Node) -> None:
        """Drops a root that has neither children nor leases."""
        if isinstance(node, Root) and not node.children and not node.leases:
            del self.roots[node.namespace]
