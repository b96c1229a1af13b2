"""The radix tree: where nodes hang, who locks them, and which leaf goes next.

Page-aligned: an edge is a whole number of pages (a partial leaf: one page, not full); nodes split at page
boundaries; the pages of a node never change hands while a lease lies on it. One root per namespace. It
knows nothing of the page pool or of requests: removed pages are handed to its only caller, cache.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from palmette.radix_cache import scores
from palmette.radix_cache.events import PageEvents
from palmette.radix_cache.eviction import EvictionOrder
from palmette.radix_cache.key import common_tokens
from palmette.radix_cache.node import Node, Root
from palmette.radix_cache.pins import Pins
from palmette.runtime.messages.tokens import TOKEN_BYTES


class Descent(NamedTuple):
    """How far whole nodes agree with a key: down to `node`, `at` bytes of the key.

    `child` is the one below that shares at least the next full page, and `tokens` how many tokens, not all of its.
    """

    node: Node
    at: int
    child: Node | None
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

    def __init__(self, page_size: int, order: EvictionOrder, clock: Callable[[], float], pins: Pins) -> None:
        self.page_size = page_size
        self.page_bytes = page_size * TOKEN_BYTES
        self.order = order
        self.clock = clock
        self.pins = pins
        self.events: PageEvents | None = None
        self._learner = order.policy.learner
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

    def descend(self, node: Node, key: bytes, at: int) -> Descent:
        """Follows `key` from byte `at` on, down from `node`. One comparison of memory a node."""
        page_bytes = self.page_bytes
        while len(key) - at >= page_bytes:
            child = node.children.starting_with(key[at : at + page_bytes])
            if child is None:
                break
            part = child.key
            if not key.startswith(part, at):
                return Descent(node, at, child, common_tokens(part, key, at))
            node = child
            at += len(part)
        return Descent(node, at, None, 0)

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
        upper.pins, upper.hint, upper.priority = node.pins, node.hint, node.priority
        if self._learner is not None:
            self._learner.split(upper, node)
        parent.children.replace(node, upper)
        node.key, node.pages, node.parent, node.tails = node.key[cut:], node.pages[pages:], upper, 0
        if node.scores is not None:
            upper.scores = node.scores.cut(pages * self.page_size)
        upper.adopt(node)
        self.node_count += 1
        if self.events is not None:
            self.events.split(upper, node)
        return upper

    def add(self, parent: Node, key: bytes, pages: array[int], *, leases: int, priority: int = 0) -> Node:
        """Hangs a new leaf below `parent`, which is leased."""
        assert parent.leases >= leases, "a path is leased from its root on"
        node = Node(key, pages, parent, self.clock())
        node.leases = leases
        node.priority = priority
        parent.adopt(node)
        self.node_count += 1
        self.page_count += len(pages)
        self.evictable += node.spare
        if self._learner is not None:
            self._learner.added(node, 0, node.last_used)
        self._offer(node)
        if self.events is not None:
            self.events.grown(node)
        return node

    def extend(self, leaf: Node, key: bytes, pages: array[int]) -> None:
        """Appends whole pages to a leased leaf in place, so that a growing sequence stays one node."""
        assert leaf.leases > 0, "only a leased node grows in place"
        assert not leaf.children, "only a leaf grows in place"
        assert leaf.parent is not None, "a root has no pages"
        assert not leaf.pins, "a pin ends where its node ends"
        at = len(leaf.key)
        leaf.key += key
        leaf.pages += pages
        if leaf.scores is not None:
            leaf.scores.grow(len(leaf.key) // TOKEN_BYTES)
        self.page_count += len(pages)
        if self._learner is not None:
            self._learner.added(leaf, at, self.clock())
        if self.events is not None:
            self.events.grown(leaf)

    # Locking

    def lock_path(self, node: Node, priority: int = 0) -> array[int]:
        """One lease more on the node and all above it: they are used once more, now. Returns the path's pages."""
        now, learner = self.clock(), self._learner
        parts = []
        step: Node | None = node
        while step is not None:
            if learner is not None:
                learner.used(step, now)
            if not step.leases:
                self.evictable -= step.spare
                if step.ticket is not None:
                    self.order.withdraw(step)
            step.leases += 1
            step.uses += 1
            step.last_used = now
            if step.hint is not None:
                step.hint = step.hint.after_use()
            if priority > step.priority:
                step.priority = priority
            parts.append(step.pages)
            step = step.parent
        pages = array("i")
        for part in reversed(parts):
            pages += part
        return pages

    def lock(self, node: Node) -> None:
        """One lease more on this node alone: its parent is on the lease's path already."""
        if node.leases == 0:
            self.evictable -= node.spare
            self.order.withdraw(node)
        node.leases += 1

    def unlock_path(self, node: Node, generated: int | None = None) -> None:
        """One lease less on the node and all above it; they count as used now. `generated`: see RadixCache.finish."""
        now = self.clock()
        top = node
        step: Node | None = node
        while step is not None:
            assert step.leases > 0, "a lease is released once"
            step.last_used = now
            step.leases -= 1
            if not step.leases:
                self.evictable += step.spare
            top, step = step, step.parent
        if self._learner is not None:
            self._learner.finished(node, now, generated)
        self._offer(node)
        self._forget_empty(top)

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

    # Pinning and hinting

    def pin(self, node: Node, expires: float) -> None:
        self.order.withdraw(node)
        self.pins.put(node, expires)
        self._offer(node)

    def unpin(self, node: Node) -> None:
        self.pins.drop(node)
        self._offer(node)

    def expire_pins(self) -> None:
        """Ends the pins whose time is over."""
        if not self.pins:
            return
        now = self.clock()
        while (node := self.pins.expired(now)) is not None:
            self.unpin(node)

    def reconsider(self, node: Node) -> None:
        """The node's hint or priority has changed: its place in the eviction order is found anew."""
        if node.ticket is not None:
            self.order.push(node)

    # Shrinking

    def evict(self, pages: int) -> array[int]:
        """Gives up `pages` evictable pages, cheapest leaves first, from their ends; pinned ones last. Returns them."""
        assert pages <= self.evictable, f"{pages} pages to evict of {self.evictable} evictable"
        gone = array("i")
        self.expire_pins()
        learner, now = self._learner, self.clock()
        while (short := pages - len(gone)) > 0:
            leaf = self.order.first(now) or self.pins.first()
            assert leaf is not None, "evictable pages without an evictable leaf"
            portion = len(leaf.pages) - (leaf.tails > 0)
            if learner is not None:
                portion = learner.portion(leaf, portion)
            gone += self._trim(leaf, min(short, portion), now)
            if portion <= short and leaf.ticket is not None:  # the rank was that of what is gone
                self.order.push(leaf)
        return gone

    def prune_prefix(self, parent: Node, child: Node) -> array[int]:
        """Removes the partial leaf whose tokens `child` now repeats, unless it is in use."""
        before = parent.children.neighbours(child.key[: self.page_bytes]).before
        if before is None or before.tails or before.leases or not child.key.startswith(before.key):
            return array("i")
        assert self.is_partial(before), "siblings never share a full first page"
        if before.scores is not None:
            scores.adopt(child, before.scores)
        return self._trim(before, len(before.pages), self.clock())

    def is_partial(self, node: Node) -> bool:
        return len(node.key) < len(node.pages) * self.page_bytes

    def detach(self, node: Node) -> list[Node]:
        """Takes the subtree off as it is, leases and all, and returns its nodes. `recount` must follow."""
        if isinstance(node, Root):
            del self.roots[node.namespace]
        elif node.parent is not None:
            node.parent.children.discard(node)
        nodes = list(node.subtree())
        if self.events is not None:
            self.events.dropped(nodes)
        return nodes

    def recount(self) -> None:
        """Sums up counts and order anew from the nodes and their leases. O(nodes): for quarantine only."""
        self.order.clear()
        self.pins.rebuild(set(self.nodes()))
        self.evictable = self.page_count = self.node_count = 0
        for node in list(self.nodes()):
            self.evictable += node.spare
            self.page_count += len(node.pages)
            self.node_count += node.parent is not None
            self._offer(node)
        for root in list(self.roots.values()):
            self._forget_empty(root)
        if self._learner is not None:
            self._learner.recounted(sum(len(node.key) for node in self.nodes()))

    def _trim(self, leaf: Node, pages: int, now: float) -> array[int]:
        """Takes `pages` pages off the end of an evictable leaf; the leaf goes with its last page."""
        kept = len(leaf.pages) - pages
        if self._learner is not None:
            self._learner.trimmed(leaf, kept * self.page_bytes, now)
        self.page_count -= pages
        self.evictable -= pages
        if leaf.pins:
            self.pins.pages -= pages
        if self.events is not None:
            self.events.trimmed(leaf, kept)
        if kept:
            gone = leaf.pages[kept:]
            leaf.key = leaf.key[: kept * self.page_bytes]
            del leaf.pages[kept:]
            if leaf.scores is not None:
                leaf.scores.trim(kept * self.page_size)
            if not leaf.spare:
                self.order.withdraw(leaf)
            return gone
        parent = leaf.parent
        assert parent is not None
        self.order.withdraw(leaf)
        parent.children.remove(leaf)
        self.node_count -= 1
        if leaf.pins:
            self.pins.move_up(leaf, parent)
        self._offer(parent)
        self._forget_empty(parent)
        return leaf.pages

    def _offer(self, node: Node) -> None:
        """Enters the node into the eviction order where it is a leaf with pages to give."""
        if node.leases or node.children or len(node.pages) <= (node.tails > 0):
            return
        if node.pins:
            self.pins.offer(node)
        else:
            self.order.push(node)

    def _forget_empty(self, node: Node) -> None:
        """Drops a root that has neither children nor leases."""
        if isinstance(node, Root) and not node.children and not node.leases:
            del self.roots[node.namespace]
