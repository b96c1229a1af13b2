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
from types import TracebackType
from typing import NamedTuple, cast

import msgspec

from palmette.radix_cache.eviction import LRU, EvictionOrder, EvictionPolicy
from palmette.radix_cache.key import reusable_part
from palmette.radix_cache.node import Node
from palmette.radix_cache.pages import OutOfPages, PageId, PagePool
from palmette.radix_cache.tree import RadixTree
from palmette.runtime.messages import tokens
from palmette.runtime.messages.tokens import TOKEN_BYTES


class Tail(NamedTuple):
    """A match that goes on inside a page: the first `slots` slots of `page` hold the KV of the next tokens.

    The page belongs to another path; its slots are to be copied into a page of the request's own.
    """

    page: PageId
    slots: int


class Remap(msgspec.Struct, frozen=True):
    """Page `index` of a request's block table was computed twice: the table must point to `new_page`.

    `old_page` is private and unchanged until the caller, having remapped, gives it to `RadixCache.free`.
    """

    index: int
    old_page: PageId
    new_page: PageId


class Lease:
    """A request's hold on a cached prefix: no page of it goes or changes until it is released, once.

    `pages` are the whole pages (shared, read-only) and `length` their tokens; both grow by
    `RadixCache.insert`. `tail` is there until `drop_tail`, which is called when the copying step has
    committed. Usable in a `with` block. `lost` leases are those a quarantine dropped: nothing they name may
    be read any more.
    """

    __slots__ = (
        "_cache",
        "_node",
        "_tail_key",
        "_tail_parent",
        "lost",
        "namespace",
        "pages",
        "released",
        "tail",
    )

    def __init__(self, cache: RadixCache, namespace: str, node: Node, pages: list[PageId]) -> None:
        self.namespace = namespace
        self.pages = pages
        self.tail: Tail | None = None
        self.released = False
        self.lost = False
        self._cache = cache
        self._node = node
        self._tail_parent = node  # the tail's source is its child with this first page, also where that is split
        self._tail_key = b""

    @property
    def length(self) -> int:
        return len(self.pages) * self._cache.page_size

    def drop_tail(self) -> None:
        """Gives the tail's source up: the copy is done, or not wanted. Nothing happens without a tail."""
        self._cache._drop_tail(self)

    def release(self) -> None:
        """Gives everything up. A second release is an assertion."""
        self._cache._release(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self.released:
            self.release()


class RadixCache:
    """A pool of `pages` KV pages of `page_size` tokens, shared through a radix tree.

    `enabled=False`: nothing is ever shared or kept; the reference that cached runs are compared with.
    """

    def __init__(
        self,
        pages: int,
        page_size: int,
        *,
        eviction: EvictionPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        enabled: bool = True,
    ) -> None:
        assert page_size > 0, f"a page of {page_size} tokens"
        self.page_size = page_size
        self.enabled = enabled
        self.pool = PagePool(pages)
        self.tree = RadixTree(page_size, EvictionOrder(eviction or LRU()), clock)
        self.leases: set[Lease] = set()
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
    def quarantined_pages(self) -> int:
        return len(self.pool.quarantined)

    def available(self) -> int:
        """Pages that `allocate` could give now: free or evictable. O(1)."""
        return self.pool.free_count + self.tree.evictable

    # Matching

    def match(self, key: bytes, namespace: str) -> Lease:
        """Leases the longest cached prefix of `key`, capped at its tokens − 1. Marks the path as used now."""
        tree = self.tree
        key = reusable_part(key) if self.enabled else b""
        node: Node = tree.root(namespace)
        pages: list[int] = []
        at = 0
        while (step := tree.follow(node, key, at)) is not None:
            node, shared = step.child, step.tokens // self.page_size
            if shared < len(node.pages):
                node = tree.split(node, shared)
            pages += node.pages
            at += shared * tree.page_bytes
        lease = Lease(self, namespace, node, cast("list[PageId]", pages))
        tree.lock_path(node)
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
        node: Node = found
        at = 0
        while (step := tree.follow(node, key, at)) is not None:
            if step.tokens < tokens.count(step.child.key):
                return at // TOKEN_BYTES + step.tokens
            node = step.child
            at += len(node.key)
        best = tree.best_tail(node, key, at)
        return at // TOKEN_BYTES + (best.tokens if best is not None else 0)

    # Pages

    def allocate(self, n: int) -> list[PageId]:
        """n private pages, evicting as needed. Raises OutOfPages, and evicts nothing, where they can't be
        had.

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
        if short > 0:
            self.evicted_pages += self._give_up(short)
        return self.pool.take(n)

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
        assert pages[at - 1 : at] == lease.pages[-1:] or not at, "the block table starts with the lease's pages"
        assert len(pages) >= end, f"{len(pages)} pages for {end} pages of tokens"
        if end <= at:
            return []
        key = key[: end * tree.page_bytes]
        remaps: list[Remap] = []
        while (step := tree.follow(lease._node, key, at * tree.page_bytes)) is not None:
            node, shared = step.child, step.tokens // self.page_size
            if shared < len(node.pages):
                node = tree.split(node, shared)
            tree.lock(node)
            kept = cast("list[PageId]", node.pages.tolist())
            remaps += [Remap(at + i, pages[at + i], page) for i, page in enumerate(kept)]
            lease._node = node
            lease.pages += kept
            at += shared
        if at < end:
            self._grow(lease, key[at * tree.page_bytes :], pages[at:end])
        return remaps

    def finish(self, lease: Lease, key: bytes, pages: Sequence[PageId]) -> None:
        """Takes over all that a finished, aborted or retracted request held, and releases its lease.

        `key`: its committed tokens (KV written, never rolled back); `pages`: its block table, pages
        reserved beyond `key` too. What is new is kept in the tree, a last page that isn't full as well; the
        other private pages are freed. Pages of earlier Remaps that weren't freed yet are the caller's to
        free.
        """
        unkept = list(pages[len(lease.pages) :])
        if self.enabled and not lease.lost:
            losers = [remap.old_page for remap in self.insert(lease, key, pages)]
            whole = len(lease.pages)
            rest = key[whole * self.tree.page_bytes :]
            kept = whole + (bool(rest) and self._keep_partial(lease, rest, pages[whole]))
            unkept = [*losers, *pages[kept:]]
        lease.release()
        self.free(unkept)

    def _grow(self, lease: Lease, key: bytes, pages: Sequence[PageId]) -> None:
        """Hangs whole pages that the tree doesn't have behind the lease's node, and leases them."""
        tree, node = self.tree, lease._node
        owned = array("i", pages)
        if node.leases == 1 and not node.children and node.parent is not None:
            tree.extend(node, key, owned)
        else:
            lease._node = tree.add(node, key, owned, leases=1)
            self.pool.give_back(tree.prune_prefix(node, key))
        lease.pages += pages

    def _keep_partial(self, lease: Lease, key: bytes, page: PageId) -> bool:
        """Hangs a page that isn't full behind the lease's node; False where a child begins with it."""
        tree, node = self.tree, lease._node
        if node.children.starting_with(key) is not None:
            return False
        tree.add(node, key, array("i", [page]), leases=0)
        self.pool.give_back(tree.prune_prefix(node, key))
        return True

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
                self.pool.give_back(tree.prune_prefix(parent, after.key))

    def _release(self, lease: Lease) -> None:
        assert not lease.released, "a lease is released once"
        lease.drop_tail()
        lease.released = True
        self.leases.discard(lease)
        if not lease.lost:
            self.tree.unlock_path(lease._node)

    def _give_up(self, pages: int) -> int:
        gone = self.tree.evict(pages)
        self.pool.give_back(gone)
        return len(gone)

    # Quarantine

    def quarantine(self, pages: Iterable[PageId], nodes: Iterable[Node], orphans: Iterable[Lease] = ()) -> list[Lease]:
        """Takes damaged state out of use: drops the subtrees of `nodes`, and never hands out `pages` again.

        Pages of the dropped subtrees are quarantined too, since requests may be reading them. `orphans` are
        leases that nobody holds any more; they hold nothing from now on. Returns the other leases that touched
        any of it, marked lost: their requests must fail, and `finish` then only frees what is private.
        """
        for orphan in orphans:
            self.leases.discard(orphan)
            orphan.lost = orphan.released = True
        self.pool.quarantine(pages)
        dropped: set[Node] = set()
        for node in nodes:
            dropped.update(self.tree.detach(node) if node not in dropped else ())
        self.pool.quarantine(page for node in dropped for page in node.pages)
        lost = [lease for lease in self.leases if not dropped.isdisjoint(self._touched(lease))]
        for lease in lost:
            lease.lost = True
        self._relock()
        return lost

    def _touched(self, lease: Lease) -> list[Node]:
        source = lease._tail_parent.children.starting_with(lease._tail_key) if lease.tail is not None else None
        return [*lease._node.path(), *([source] if source is not None else [])]

    def _relock(self) -> None:
        """Counts leases and tails of every node anew from the live leases."""
        for node in self.tree.nodes():
            node.leases = node.tails = 0
        for lease in self.leases:
            if lease.lost:
                continue
            for node in lease._node.path():
                node.leases += 1
            if lease.tail is not None:
                source = lease._tail_parent.children.starting_with(lease._tail_key)
                assert source is not None
                source.tails += 1
        self.tree.recount()
