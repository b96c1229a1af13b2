"""The radix cache: leases on cached prefixes, pages for what is not cached, and what becomes of both.

Owns the page pool and the tree. Each page is free, private to a request, in exactly one tree node, or
quarantined. Callers (the scheduler; the simulator) hold leases, never nodes. It knows nothing of requests,
steps or KV bytes. Not thread-safe: one owner.

The life of a request: `match` → (copy the tail, `drop_tail`) → `allocate` → `insert` after prefill chunks →
`finish`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from palmette.radix_cache.events import PageEvents
from palmette.radix_cache.eviction import LRU, EvictionOrder, EvictionPolicy
from palmette.radix_cache.key import reusable_part
from palmette.radix_cache.lease import Lease as Lease
from palmette.radix_cache.lease import Remap as Remap
from palmette.radix_cache.lease import Tail as Tail
from palmette.radix_cache.node import Node
from palmette.radix_cache.pages import OutOfPages, PageId, PagePool
from palmette.radix_cache.paths import CachedPaths
from palmette.radix_cache.pins import Pins
from palmette.radix_cache.tree import RadixTree
from palmette.runtime.messages.kv_events import KvEvent
from palmette.runtime.messages.tokens import TOKEN_BYTES

PINNED_SHARE = 0.5  # of the pool, at most, by default


class RadixCache:
    """A pool of `pages` KV pages of `page_size` tokens, shared through a radix tree.

    `enabled=False`: nothing is ever shared or kept; the reference that cached runs are compared with.
    `pinned_share`: what pins may cover of the pool.
    """

    def __init__(
        self,
        pages: int,
        page_size: int,
        *,
        eviction: EvictionPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        enabled: bool = True,
        pinned_share: float = PINNED_SHARE,
    ) -> None:
        assert page_size > 0, f"a page of {page_size} tokens"
        self.page_size = page_size
        self.enabled = enabled
        self.pool = PagePool(pages)
        self.pins = Pins(int(pinned_share * pages))
        self._eviction = eviction or LRU()
        self.tree = RadixTree(page_size, EvictionOrder(self._eviction, clock), clock, self.pins)
        self.paths = CachedPaths(self.tree)
        self.leases: set[Lease] = set()
        self._grown: list[Node] = []  # by requests that have finished since the last match
        self.evicted_pages = 0

    @property
    def pages(self) -> int:
        """Pages in all, whatever they hold."""
        return self.pool.pages

    @property
    def free_count(self) -> int:
        return self.pool.free_count

    @property
    def cached_pages(self) -> int:
        """Pages in the tree, leased or not."""
        return self.tree.page_count

    @property
    def pinned_pages(self) -> int:
        """Pages in the tree that pins cover; those that have expired since the last eviction or pin too."""
        return self.pins.pages

    @property
    def quarantined_pages(self) -> int:
        return len(self.pool.quarantined)

    def available(self) -> int:
        """Pages that `allocate` could give now: free or evictable. O(1)."""
        return self.pool.free_count + self.tree.evictable

    # Matching

    def match(self, key: bytes, namespace: str, *, priority: int = 0) -> Lease:
        """Leases the longest cached prefix of `key`, capped at its tokens − 1. Marks the path as used now.

        `priority` is for the eviction policy of that name: what the lease touches has at least this one.
        """
        tree = self.tree
        if self._grown:
            self._settle()
        key = reusable_part(key) if self.enabled else b""
        node, at = self._cut(tree.root(namespace), key, 0)
        lease = Lease(self, namespace, node, tree.lock_path(node, priority), priority)
        if (best := tree.best_tail(node, key, at)) is not None:
            tree.lock_tail(best.child)
            lease.tail = Tail(PageId(best.child.pages[0]), best.tokens)
            lease._tail_key = best.child.key[: tree.page_bytes]
        self.leases.add(lease)
        return lease

    def peek(self, key: bytes, namespace: str) -> int:
        """Tokens that `match` would find, its tail counted. Nothing is leased, touched or split."""
        tree = self.tree
        found = tree.roots.get(namespace)
        if found is None or not self.enabled:
            return 0
        key = reusable_part(key)
        node, at, child, shared = tree.descend(found, key, 0)
        if child is not None:
            return at // TOKEN_BYTES + shared
        best = tree.best_tail(node, key, at)
        return at // TOKEN_BYTES + (best.tokens if best is not None else 0)

    def _cut(self, node: Node, key: bytes, at: int) -> tuple[Node, int]:
        """The node that ends with the last whole page that is cached of `key`, and where in bytes; split off where
        there is none yet. `node` and `at`: where to begin."""
        tree = self.tree
        node, at, child, shared = tree.descend(node, key, at)
        if child is not None:
            node = tree.split(child, shared // self.page_size)
            at += len(node.key)
        return node, at

    # Pages

    def allocate(self, n: int) -> Sequence[PageId]:
        """n private pages (an array of int32), evicting as needed. Raises OutOfPages, and evicts nothing, where they
        can't be had.

        A caller that holds a lease with a tail may give the tail up and try again: it holds one page.
        """
        short = n - self.pool.free_count
        if short > self.tree.evictable:
            raise OutOfPages(
                n,
                free=self.pool.free_count,
                evictable=self.tree.evictable,
                total=self.pages - self.quarantined_pages,
            )
        if short <= 0:
            return cast("Sequence[PageId]", self.pool.take(n))
        self.evicted_pages += short
        if self.quarantined_pages:  # the pool keeps out what must not come back
            self._give_up(short)
            return cast("Sequence[PageId]", self.pool.take(n))
        gone = self.tree.evict(short)
        return cast("Sequence[PageId]", self.pool.take(n - short) + gone if n > short else gone)

    def free(self, pages: Iterable[PageId]) -> None:
        """Private pages back to the pool."""
        self.pool.give_back(pages)

    def clear(self) -> int:
        """Drops every cached page that no lease holds; returns how many. Safe at any time."""
        return self._give_up(self.tree.evictable)

    # Inserting

    def insert(self, lease: Lease, key: bytes, pages: Sequence[PageId]) -> list[Remap]:
        """Offers what an unfinished request has computed.

        `key`: its committed tokens, from the first on; `pages`: its block table, at least all pages of
        `key`. The whole pages beyond `lease.length` become the tree's and the lease grows over them. Where
        the tree already has a page with those tokens, the request's own is left to it in a Remap.
        """
        assert not lease.released, "an insert behind the release"
        if lease.lost or not self.enabled:
            return []
        tree = self.tree
        at = len(lease.pages)
        end = len(key) // tree.page_bytes
        assert not at or pages[at - 1] == lease.pages[-1], "the block table starts with the lease's pages"
        assert len(pages) >= end, f"{len(pages)} pages for {end} pages of tokens"
        if end <= at:
            return []
        key = key[: end * tree.page_bytes]
        remaps: list[Remap] = []
        node, reached = self._cut(lease._node, key, at * tree.page_bytes)
        if node is not lease._node:
            for part in self._lock_down_to(lease, node):
                remaps += [Remap(at + i, pages[at + i], PageId(page)) for i, page in enumerate(part.pages)]
                lease._pages += part.pages
                at += len(part.pages)
        assert reached == at * tree.page_bytes
        if at < end:
            self._grow(lease, key[at * tree.page_bytes :], pages[at:end])
        return remaps

    def finish(self, lease: Lease, key: bytes, pages: Sequence[PageId], *, generated: int | None = None) -> None:
        """Takes over all that a finished, aborted or retracted request held, and releases its lease.

        `key`: its committed tokens (KV written, never rolled back); `pages`: its block table, pages
        reserved beyond `key` too. What is new is kept in the tree, a last page that isn't full as well; the
        other private pages are freed. Pages of earlier Remaps that weren't freed yet are the caller's to
        free. `generated`: how many tokens the request's answer has, in `key` or not; the rest of `key` is prompt.
        Eviction policies learn from it; None: not known.
        """
        unkept = list(pages[len(lease.pages) :])
        if self.enabled and not lease.lost:
            losers = [remap.old_page for remap in self.insert(lease, key, pages)]
            whole = len(lease.pages)
            rest = key[whole * self.tree.page_bytes :]
            kept = whole + (bool(rest) and self._keep_partial(lease, rest, pages[whole]))
            unkept = [*losers, *pages[kept:]]
        self._release(lease, generated)
        self.free(unkept)
        if lease._grew and not lease.lost:
            self._grown.append(lease._node)

    def _grow(self, lease: Lease, key: bytes, pages: Sequence[PageId]) -> None:
        """Hangs whole pages that the tree doesn't have behind the lease's node, and leases them."""
        tree, node = self.tree, lease._node
        owned = pages if isinstance(pages, array) else array("i", pages)
        if node.leases == 1 and not node.children and not node.pins and node.parent is not None:
            tree.extend(node, key, owned)
        else:
            lease._node = tree.add(node, key, owned, leases=1, priority=lease.priority)
            self.pool.give_back(tree.prune_prefix(node, lease._node))
        lease._pages += owned
        lease._grew = True

    def _settle(self) -> None:
        """Moves what finished requests left to new places in memory. What they needed meanwhile lay around it and is
        gone; where nothing moved, that would leave holes too small for anything."""
        for node in self._grown:
            node.key, node.pages = bytes(memoryview(node.key)), node.pages[:]
        self._grown.clear()

    def _lock_down_to(self, lease: Lease, node: Node) -> list[Node]:
        """Moves the lease down to `node`; returns the nodes that it holds now and didn't before, top first."""
        added = [node]
        while (parent := added[-1].parent) is not lease._node:
            assert parent is not None, "a lease moves down its own path"
            added.append(parent)
        added.reverse()
        for step in added:
            self.tree.lock(step)
        lease._node = node
        return added

    def _keep_partial(self, lease: Lease, key: bytes, page: PageId) -> bool:
        """Hangs a page that isn't full behind the lease's node; False where a child begins with it."""
        tree, node = self.tree, lease._node
        if node.children.starting_with(key) is not None:
            return False
        leaf = tree.add(node, key, array("i", [page]), leases=0, priority=lease.priority)
        self.pool.give_back(tree.prune_prefix(node, leaf))
        return True

    # Events

    def listen(self, tell: Callable[[KvEvent], None]) -> PageEvents:
        """From now on `tell` hears which pages are stored and removed, those that are there first. Without a
        listener nothing is hashed."""
        events = self.tree.events = PageEvents(self.page_size, self.tree.page_bytes, tell)
        for node in self.tree.nodes():
            if node.parent is not None:
                events.grown(node)
        return events

    # Letting go

    def _drop_tail(self, lease: Lease) -> None:
        if lease.tail is None:
            return
        lease.tail = None
        if lease.lost:
            return
        tree, parent = self.tree, lease._tail_parent
        source = parent.children.starting_with(lease._tail_key)
        assert source is not None, "a tail's source stays until it is given up"
        tree.unlock_tail(source)
        if tree.is_partial(source):
            after = parent.children.neighbours(source.key + b"\0").after
            if after is not None and after.key.startswith(source.key):
                self.pool.give_back(tree.prune_prefix(parent, after))

    def _release(self, lease: Lease, generated: int | None = None) -> None:
        assert not lease.released, "a lease is released once"
        lease.drop_tail()
        lease.released = True
        self.leases.discard(lease)
        if not lease.lost:
            self.tree.unlock_path(lease._node, generated)

    def _give_up(self, pages: int) -> int:
        gone = self.tree.evict(pages)
        self.pool.give_back(gone)
        return len(gone)

    def reset(self) -> None:
        """Forgets everything, quarantine too: for a state that can't be mended. Nobody may use any page any more."""
        for lease in self.leases:
            lease.lost = lease.released = True
        self.leases.clear()
        self._grown.clear()
        clock, events = self.tree.clock, self.tree.events
        self.pool = PagePool(self.pool.pages)
        self.pins = Pins(self.pins.capacity)
        self.tree = RadixTree(self.page_size, EvictionOrder(self._eviction, clock), clock, self.pins)
        self.paths = CachedPaths(self.tree)
        self.tree.recount()
        if events is not None:
            self.tree.events = events.cleared()
