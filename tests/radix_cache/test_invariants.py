"""radix_cache.invariants: each kind of damage is found, and a quarantine contains it."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from palmette.radix_cache.cache import Lease, RadixCache
from palmette.radix_cache.eviction import EvictionPolicy
from palmette.radix_cache.eviction.learned import HitDensity
from palmette.radix_cache.invariants import check_invariants
from palmette.radix_cache.node import Node
from palmette.radix_cache.pages import PageId
from palmette.radix_cache.quarantine import quarantine
from palmette.radix_cache.scores import Scores
from palmette.runtime.messages.tokens import pack

SHARED = [0, 1, 2, 3]


def grown(eviction: EvictionPolicy | None = None) -> RadixCache:
    """A trunk of one page with three branches of two pages, the last page of each not full."""
    cache = RadixCache(16, 4, eviction=eviction)
    for branch in (10, 20, 30):
        tokens = SHARED + [branch] * 6
        lease = cache.match(pack(tokens), "")
        cache.finish(lease, pack(tokens), [*lease.pages, *cache.allocate(3 - len(lease.pages))])
    assert check_invariants(cache, []) == []
    return cache


def trunk(cache: RadixCache) -> Node:
    return next(iter(cache.tree.roots[""].children))


def branch(cache: RadixCache) -> Node:
    return next(iter(trunk(cache).children))


def leaf(cache: RadixCache) -> Node:
    return next(iter(branch(cache).children))


def unsort(cache: RadixCache) -> None:
    trunk(cache).children._nodes.reverse()


def share_a_page(cache: RadixCache) -> None:
    first, second, _ = trunk(cache).children
    second.pages[0] = first.pages[0]


def same_first_page(cache: RadixCache) -> None:
    first, second, _ = trunk(cache).children
    second.key = first.key


def set_leases(cache: RadixCache) -> None:
    leaf(cache).leases = 1


DAMAGES: list[tuple[Callable[[RadixCache], object], str]] = [
    (lambda cache: cache.pool.take(1), "leaked pages"),
    (share_a_page, "is in 2 places"),
    (lambda cache: cache.pool._free.append(trunk(cache).pages[0]), "the free list, a node"),
    (unsort, "out of order"),
    (same_first_page, "out of order"),
    (set_leases, "1 leases and 0 tails counted, 0 and 0 alive"),
    (lambda cache: setattr(branch(cache), "key", branch(cache).key[:-4]), "partial node"),
    (lambda cache: setattr(branch(cache), "key", branch(cache).key + b"...."), "20 bytes of tokens in 1 pages"),
    (lambda cache: setattr(cache.tree, "evictable", 3), "3 evictable pages counted"),
    (lambda cache: cache.tree.order.withdraw(leaf(cache)), "not in the eviction order"),
    (lambda cache: cache.tree.order.push(trunk(cache)), "can't be evicted"),
    (lambda cache: setattr(branch(cache), "parent", cache.tree.roots[""]), "another parent"),
    (lambda cache: trunk(cache).children._heads.reverse(), "found by other tokens"),
    (lambda cache: setattr(branch(cache), "pins", 1), "1 pins counted, 0 there"),
    (lambda cache: cache.pins.expires.update({Node(b"", array("i"), None, 0.0): 1.0}), "a pin on a node"),
    (lambda cache: setattr(cache.pins, "pages", 1), "1 pinned pages counted, 0 there"),
    (lambda cache: setattr(leaf(cache), "scores", Scores(array("f", [0.0]), {})), "1 log-probabilities"),
]


@pytest.mark.parametrize(("damage", "what"), DAMAGES, ids=[what for _, what in DAMAGES])
def test_damage_is_found(damage: Callable[[RadixCache], object], what: str) -> None:
    cache = grown()
    damage(cache)
    assert any(what in str(violation) for violation in check_invariants(cache, []))


def test_private_pages_count_as_owned() -> None:
    cache = grown()
    pages = cache.allocate(2)
    assert check_invariants(cache, [pages]) == []
    assert "is in 2 places: request 0, request 1" in str(check_invariants(cache, [pages, pages[:1]])[0])
    assert "the free list, request 0" in str(check_invariants(cache, [[*pages, cache.pool.free_pages()[0]]])[0])


def test_a_quarantine_drops_what_is_damaged_and_fails_who_touched_it() -> None:
    cache = grown()
    hurt = cache.match(pack(SHARED + [10] * 5), "")
    sound = cache.match(pack(SHARED + [30] * 5), "")
    own: dict[Lease, list[PageId]] = {lease: cache.allocate(1) for lease in (hurt, sound)}
    first, second, _ = trunk(cache).children
    second.pages[0] = first.pages[0]
    violations = check_invariants(cache, own.values())
    pages = [page for violation in violations for page in violation.pages]
    nodes = [node for violation in violations for node in violation.nodes]

    assert quarantine(cache, pages, nodes) == [hurt]

    assert hurt.lost
    assert not sound.lost
    assert check_invariants(cache, own.values()) == []
    assert cache.quarantined_pages == 4, "the page in two places, the one it displaced, and the leaves below"
    assert cache.peek(pack(SHARED + [10] * 5), "") == 4
    assert cache.peek(pack(SHARED + [30] * 5), "") == 8
    assert cache.insert(hurt, pack(SHARED + [10] * 8), [*hurt.pages, *own[hurt]]) == []
    for lease in (hurt, sound):
        cache.finish(lease, pack(SHARED * 2), [*lease.pages, *own[lease]])
    assert check_invariants(cache, []) == []
    cache.clear()
    assert cache.free_count == 16 - 4


def test_a_quarantine_of_a_root_resets_its_namespace() -> None:
    cache = grown()
    lease = cache.match(pack([*SHARED, 1]), "")
    assert quarantine(cache, [], [cache.tree.roots[""]]) == [lease]
    assert check_invariants(cache, []) == []
    assert (cache.cached_pages, cache.quarantined_pages) == (0, 7)
    lease.release()
    assert check_invariants(cache, []) == []


def test_who_learns_hears_that_nodes_went_untold_of() -> None:
    learner = HitDensity()
    cache = grown(learner)

    def tokens() -> int:
        return sum(len(node.key) for node in cache.tree.nodes())

    assert learner._cached == tokens() > 0
    quarantine(cache, [], [branch(cache)])
    assert learner._cached == tokens() > 0
    cache.allocate(cache.available())
    assert learner._cached == tokens() == 0
    cache = grown(learner := HitDensity())
    cache.reset()
    assert learner._cached == 0
