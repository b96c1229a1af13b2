"""What must hold between any two calls to the cache, checked from scratch.

Reads everything, changes nothing, trusts no count. Called after every step in tests and by an idle server,
which hands what it finds to `RadixCache.quarantine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.eviction import SLACK
from palmette.radix_cache.node import Node, Root
from palmette.radix_cache.pages import PageId
from palmette.runtime.messages.tokens import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be. `pages` and `nodes` are those concerned: the arguments of a quarantine."""

    what: str
    pages: tuple[PageId, ...] = ()
    nodes: tuple[Node, ...] = ()

    def __str__(self) -> str:
        return f"{self.what} (pages {list(self.pages)!r})" if self.pages else self.what


def check_invariants(cache: RadixCache, private: Iterable[Sequence[PageId]]) -> list[Violation]:
    """All violations; none where the cache is sound. O(pages + nodes + leased paths).

    `private`: for each request the pages of its own, those of Remaps that aren't freed yet too; not
    `lease.pages`.
    """
    return [
        *_owners(cache, private),
        *_shape(cache),
        *_leases(cache),
        *_counts(cache),
        *_order(cache),
        *_pins(cache),
        *_scores(cache),
    ]


def _owners(cache: RadixCache, private: Iterable[Sequence[PageId]]) -> Iterable[Violation]:
    """Every page is in exactly one place."""
    owners: dict[int, list[str | Node]] = {}

    def claim(pages: Iterable[int], owner: str | Node) -> None:
        for page in pages:
            owners.setdefault(page, []).append(owner)

    claim(cache.pool.free_pages(), "the free list")
    claim(cache.pool.quarantined, "quarantine")
    for index, pages in enumerate(private):
        claim((page for page in pages if page not in cache.pool.quarantined), f"request {index}")
    for node in cache.tree.nodes():
        claim(node.pages, node)
    for page, claims in sorted(owners.items()):
        nodes = tuple(claim for claim in claims if isinstance(claim, Node))
        if not 0 <= page < cache.pages:
            yield Violation(f"page {page} is outside the pool", (), nodes)
        elif len(claims) > 1:
            names = ", ".join("a node" if isinstance(claim, Node) else claim for claim in claims)
            yield Violation(f"page {page} is in {len(claims)} places: {names}", (PageId(page),), nodes)
    if leaked := [PageId(page) for page in range(cache.pages) if page not in owners]:
        yield Violation("leaked pages", tuple(leaked))


def _shape(cache: RadixCache) -> Iterable[Violation]:
    """Tokens fit pages, only leaves are partial, children are ordered and differ within their first page."""
    page_bytes = cache.tree.page_bytes
    for namespace, root in cache.tree.roots.items():
        if root.key or root.pages or root.parent is not None or root.namespace != namespace:
            yield Violation(f"the root of {namespace!r} holds tokens or pages, or hangs elsewhere", (), (root,))
        if not root.children and not root.leases:
            yield Violation(f"the root of {namespace!r} is empty", (), (root,))
    for node in cache.tree.nodes():
        size, full = len(node.key), len(node.pages) * page_bytes
        partial = size < full
        if not isinstance(node, Root):
            if not node.pages or size > full or size <= full - page_bytes or size % TOKEN_BYTES:
                yield Violation(f"{size} bytes of tokens in {len(node.pages)} pages", (), (node,))
            if partial and (len(node.pages) > 1 or node.children):
                yield Violation("a partial node of several pages or with children", (), (node,))
        children = list(node.children)
        if not node.children.heads_are_right():
            yield Violation("children found by other tokens than theirs", (), (node,))
        if any(child.parent is not node for child in children):
            yield Violation("a child names another parent", (), (node,))
        for left, right in pairwise(children):
            if left.key >= right.key:
                yield Violation("children out of order", (), (node,))
            elif left.key[:page_bytes] == right.key[:page_bytes]:
                yield Violation("siblings share a full first page", (), (node,))


def _leases(cache: RadixCache) -> Iterable[Violation]:
    """Counts equal the live leases below, and each lease names the pages of its path."""
    leases: dict[Node, int] = {}
    tails: dict[Node, int] = {}
    known = set(cache.tree.nodes())
    for lease in cache.leases:
        if lease.lost:
            continue
        path = list(lease._node.path())
        if path[0] not in known or path[-1] is not cache.tree.roots.get(lease.namespace):
            yield Violation("a lease on a node that isn't in its namespace's tree", tuple(lease.pages))
            continue
        for node in path:
            leases[node] = leases.get(node, 0) + 1
        if [page for node in reversed(path) for page in node.pages] != list(lease.pages):
            yield Violation("a lease's pages aren't those of its path", tuple(lease.pages), (path[0],))
        if lease.tail is not None:
            source = lease._tail_parent.children.starting_with(lease._tail_key)
            if source is None or source.pages[0] != lease.tail.page:
                yield Violation("the source of a tail is gone", (lease.tail.page,), (path[0],))
            else:
                tails[source] = tails.get(source, 0) + 1
    for node in known:
        if (node.leases, node.tails) != (leases.get(node, 0), tails.get(node, 0)):
            yield Violation(
                f"{node.leases} leases and {node.tails} tails counted, "
                f"{leases.get(node, 0)} and {tails.get(node, 0)} alive",
                (),
                (node,),
            )


def _counts(cache: RadixCache) -> Iterable[Violation]:
    tree = cache.tree
    nodes = list(tree.nodes())
    for name, counted, there in (
        ("evictable pages", tree.evictable, sum(node.spare for node in nodes)),
        ("pages in the tree", tree.page_count, sum(len(node.pages) for node in nodes)),
        ("nodes", tree.node_count, len(nodes) - len(tree.roots)),
    ):
        if counted != there:
            yield Violation(f"{counted} {name} counted, {there} there")


def _order(cache: RadixCache) -> Iterable[Violation]:
    """The eviction order holds each evictable leaf once and nothing else; stale entries are bounded."""
    tree, order = cache.tree, cache.tree.order
    entered = order.live_nodes()
    evictable = {node for node in tree.nodes() if not node.children and node.spare > 0}
    unpinned, pinned = {node for node in evictable if not node.pins}, {node for node in evictable if node.pins}
    if missing := (unpinned - entered) | (pinned - tree.pins.leaves()):
        yield Violation(f"{len(missing)} evictable leaves are not in the eviction order", (), tuple(missing))
    if extra := entered - unpinned:
        yield Violation(f"{len(extra)} nodes in the eviction order can't be evicted", (), tuple(extra))
    if order.live != len(entered):
        yield Violation(f"{order.live} live entries counted in the eviction order, {len(entered)} there")
    if len(order) > 2 * order.live + SLACK:
        yield Violation(f"{len(order)} entries in the eviction order for {order.live} live ones")


def _pins(cache: RadixCache) -> Iterable[Violation]:
    """Counts equal the pins at and below each node, and all together cover no more than their share."""
    pins, known = cache.pins, set(cache.tree.nodes())
    counts: dict[Node, int] = {}
    for pinned in pins.expires:
        if pinned not in known or isinstance(pinned, Root):
            yield Violation("a pin on a node that isn't in the tree", (), (pinned,))
        for node in pinned.path():
            counts[node] = counts.get(node, 0) + 1
    for node in known:
        if node.pins != counts.get(node, 0):
            yield Violation(f"{node.pins} pins counted, {counts.get(node, 0)} there", (), (node,))
    covered = sum(len(node.pages) for node in known if node.pins)
    if pins.pages != covered or covered > pins.capacity:
        yield Violation(f"{pins.pages} pinned pages counted, {covered} there, {pins.capacity} allowed")


def _scores(cache: RadixCache) -> Iterable[Violation]:
    for node in cache.tree.nodes():
        if node.scores is None:
            continue
        length = len(node.scores.own)
        if length * TOKEN_BYTES != len(node.key) or not all(0 <= index < length for index in node.scores.beside):
            yield Violation(f"{length} log-probabilities for {len(node.key)} bytes of tokens", (), (node,))
