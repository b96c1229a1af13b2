"""Damaged state of the cache out of use: subtrees dropped, pages never handed out again, the leases that touched them.

Counts are made anew from the leases that are left, since those of a damaged tree can't be trusted. Knows no requests:
who must fail is told by leases. Called by runtime/scheduler/audit.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.lease import Lease
from palmette.radix_cache.node import Node
from palmette.radix_cache.pages import PageId


def quarantine(
    cache: RadixCache, pages: Iterable[PageId], nodes: Iterable[Node], orphans: Iterable[Lease] = ()
) -> list[Lease]:
    """Drops the subtrees of `nodes`, and never hands out `pages` again.

    Pages of the dropped subtrees are quarantined too, since requests may be reading them. `orphans` are leases that
    nobody holds any more; they hold nothing from now on. Returns the other leases that touched any of it, marked lost:
    their requests must fail, and `finish` then only frees what is private.
    """
    for orphan in orphans:
        cache.leases.discard(orphan)
        orphan.lost = orphan.released = True
    cache.pool.quarantine(pages)
    dropped: set[Node] = set()
    for node in nodes:
        dropped.update(cache.tree.detach(node) if node not in dropped else ())
    cache.pool.quarantine(page for node in dropped for page in node.pages)
    lost = [lease for lease in cache.leases if not dropped.isdisjoint(_touched(lease))]
    for lease in lost:
        lease.lost = True
    _relock(cache)
    return lost


def _touched(lease: Lease) -> list[Node]:
    source = lease._tail_parent.children.starting_with(lease._tail_key) if lease.tail is not None else None
    return [*lease._node.path(), *([source] if source is not None else [])]


def _relock(cache: RadixCache) -> None:
    """Counts leases and tails of every node anew from the live leases."""
    for node in cache.tree.nodes():
        node.leases = node.tails = 0
    for lease in cache.leases:
        if lease.lost:
            continue
        for node in lease._node.path():
            node.leases += 1
        if lease.tail is not None:
            source = lease._tail_parent.children.starting_with(lease._tail_key)
            assert source is not None
            source.tails += 1
    cache.tree.recount()
