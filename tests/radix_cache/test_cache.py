"""radix_cache.cache: a request's life, rule by rule."""

from __future__ import annotations

import sys
from array import array
from itertools import count

import pytest

from palmette.radix_cache.cache import Lease, RadixCache, Remap, Tail
from palmette.radix_cache.invariants import check_invariants
from palmette.radix_cache.oracle import ReuseOracle
from palmette.radix_cache.pages import OutOfPages, PageId
from palmette.runtime.messages.tokens import pack

PAGE = 4


def make(pages: int = 32, *, page_size: int = PAGE, enabled: bool = True) -> RadixCache:
    clock = count()
    return RadixCache(pages, page_size, clock=lambda: float(next(clock)), enabled=enabled)


def admit(cache: RadixCache, tokens: list[int], namespace: str = "") -> tuple[Lease, list[PageId]]:
    """A lease and a block table for all of `tokens`."""
    lease = cache.match(pack(tokens), namespace)
    needed = -(-len(tokens) // cache.page_size) - len(lease.pages)
    return lease, [*lease.pages, *cache.allocate(needed)]


def run(cache: RadixCache, tokens: list[int], namespace: str = "") -> int:
    """A whole request; returns the tokens it found cached."""
    lease, table = admit(cache, tokens, namespace)
    found = lease.length + (lease.tail.slots if lease.tail else 0)
    lease.drop_tail()
    cache.finish(lease, pack(tokens), table)
    assert check_invariants(cache, []) == []
    return found


def test_a_match_gives_whole_pages_and_a_tail() -> None:
    cache = make()
    run(cache, list(range(12)))
    with cache.match(pack([*range(10), 99, 99]), "") as lease:
        assert list(lease.pages) == [0, 1]
        assert lease.length == 8
        assert lease.tail == Tail(PageId(2), 2)
        assert cache.peek(pack([*range(10), 99, 99]), "") == 10
    assert lease.released


def test_a_match_is_capped_at_one_token_less_than_the_key() -> None:
    cache = make()
    run(cache, list(range(12)))
    for length in range(1, 13):
        with cache.match(pack(range(length)), "") as lease:
            assert lease.length + (lease.tail.slots if lease.tail else 0) == length - 1
            assert cache.peek(pack(range(length)), "") == length - 1


def test_namespaces_share_nothing_and_vanish_when_empty() -> None:
    cache = make()
    assert run(cache, list(range(8)), "a") == 0
    assert run(cache, list(range(8)), "b") == 0
    assert run(cache, list(range(8)), "b") == 7
    assert set(cache.tree.roots) == {"a", "b"}
    assert cache.peek(pack(range(8)), "c") == 0
    assert cache.clear() == 4
    assert not cache.tree.roots


def test_a_running_request_shares_its_whole_pages() -> None:
    cache = make()
    lease, table = admit(cache, list(range(10)))
    assert cache.insert(lease, pack(range(6)), table) == []
    assert (lease.length, list(lease.pages)) == (4, table[:1])
    assert cache.peek(pack([*range(6), 99]), "") == 4, "the page that isn't full stays private"
    assert cache.insert(lease, pack(range(10)), table) == []
    assert (lease.length, cache.cached_pages) == (8, 2)
    assert cache.tree.node_count == 1, "a growing sequence stays one node"
    cache.finish(lease, pack(range(10)), table)
    assert cache.peek(pack([*range(10), 99]), "") == 10


def test_two_requests_that_computed_the_same_end_with_one_copy() -> None:
    cache = make()
    first, first_table = admit(cache, list(range(8)))
    second, second_table = admit(cache, list(range(8)))
    assert cache.insert(first, pack(range(8)), first_table) == []
    remaps = cache.insert(second, pack(range(8)), second_table)
    assert remaps == [Remap(i, second_table[i], first_table[i]) for i in range(2)]
    assert list(second.pages) == first_table
    losers = [remap.old_page for remap in remaps]
    assert check_invariants(cache, [losers]) == [], "the losers stay private until they are freed"
    cache.free(losers)
    cache.finish(first, pack(range(8)), first_table)
    cache.finish(second, pack(range(8)), second.pages)
    assert cache.cached_pages == 2
    assert cache.free_count == 30


def test_a_node_that_two_requests_hold_does_not_grow_in_place() -> None:
    cache = make()
    run(cache, list(range(8)))
    first, first_table = admit(cache, [*range(8), *[10] * 4])
    second, second_table = admit(cache, [*range(8), *[20] * 4])
    cache.insert(first, pack([*range(8), *[10] * 4]), first_table)
    assert (first.length, second.length, cache.tree.node_count) == (12, 8, 2)
    assert check_invariants(cache, [second_table[2:]]) == []
    cache.finish(second, pack([*range(8), *[20] * 4]), second_table)
    first.release()
    assert cache.peek(pack([*range(8), *[20] * 5]), "") == 12


def test_what_grew_by_chunks_gets_a_place_of_its_own_once_its_request_is_gone() -> None:
    cache = make(4000, page_size=1)
    lease, table = admit(cache, list(range(3000)))
    for end in range(7, 3000, 7):
        cache.insert(lease, pack(range(end)), table)
    cache.finish(lease, pack(range(3000)), table)
    (node,) = cache.tree.roots[""].children
    key, room = node.key, sys.getsizeof(node.pages)
    with cache.match(pack([5]), ""):
        assert node.key == key
        assert node.key is not key
        assert list(node.pages) == table
        assert sys.getsizeof(node.pages) == sys.getsizeof(array("i", table)) < room
    assert check_invariants(cache, []) == []


def test_finish_frees_losers_and_reserved_pages() -> None:
    cache = make()
    first, first_table = admit(cache, list(range(10)))
    second, second_table = admit(cache, list(range(10)))
    for lease, table in ((first, first_table), (second, second_table)):
        cache.finish(lease, pack(range(10)), [*table, *cache.allocate(3)])
    assert cache.cached_pages == 3
    assert cache.free_count == 29
    assert check_invariants(cache, []) == []


def test_an_aborted_request_leaves_only_what_was_committed() -> None:
    cache = make()
    lease, table = admit(cache, list(range(20)))
    cache.finish(lease, pack(range(6)), table)
    assert cache.cached_pages == 2
    assert cache.peek(pack(range(20)), "") == 6
    lease, table = admit(cache, list(range(20)))
    cache.finish(lease, b"", table)
    assert cache.peek(pack(range(20)), "") == 6
    assert check_invariants(cache, []) == []


def test_a_partial_page_goes_when_its_tokens_are_in_a_longer_one() -> None:
    cache = make()
    run(cache, list(range(6)))
    assert cache.cached_pages == 2
    assert run(cache, list(range(8))) == 6
    assert cache.cached_pages == 2
    assert run(cache, list(range(6))) == 5
    assert cache.cached_pages == 2, "nor is it kept where a longer one is there"


def test_a_partial_page_that_is_copied_from_goes_when_the_copy_is_done() -> None:
    cache = make()
    run(cache, list(range(6)))
    lease, table = admit(cache, list(range(8)))
    assert lease.tail == Tail(PageId(1), 2)
    cache.insert(lease, pack(range(8)), table)
    assert cache.cached_pages == 3
    lease.drop_tail()
    assert cache.cached_pages == 2
    assert check_invariants(cache, []) == []


def test_a_tail_holds_one_page_of_a_long_path() -> None:
    cache = make(8)
    run(cache, list(range(32)))
    with cache.match(pack([0, 1, 99]), "") as lease:
        assert lease.tail == Tail(PageId(0), 2)
        assert cache.available() == 7
        cache.free(cache.allocate(7))
        with pytest.raises(OutOfPages):
            cache.allocate(8)
        lease.drop_tail()
        lease.drop_tail()
        cache.free(cache.allocate(8))


def test_a_tail_survives_a_split_of_its_node() -> None:
    cache = make(16)
    run(cache, list(range(32)))
    copying = cache.match(pack([0, 1, 99]), "")
    run(cache, [*range(4), 77, 77])
    run(cache, [*range(4), 78, 78])
    assert cache.clear() == 9
    assert check_invariants(cache, []) == []
    assert copying.tail == Tail(PageId(0), 2)
    copying.release()
    assert cache.clear() == 1


def test_least_recently_used_goes_first_and_leases_stay() -> None:
    cache = make(7)
    for first in (10, 20, 30):
        run(cache, [first] * 8)
    run(cache, [10] * 8)
    with cache.match(pack([20] * 9), "") as lease:
        assert lease.length == 8
        cache.free(cache.allocate(3))
        assert [cache.peek(pack([first] * 9), "") for first in (10, 20, 30)] == [8, 8, 0]
        cache.free(cache.allocate(5))
        assert [cache.peek(pack([first] * 9), "") for first in (10, 20, 30)] == [0, 8, 0]
    assert cache.evicted_pages == 4


def test_a_refused_allocation_evicts_nothing() -> None:
    cache = make(4)
    run(cache, list(range(8)))
    with pytest.raises(OutOfPages, match="5 KV pages are needed; 2 are free and 2 evictable, of 4"):
        cache.allocate(5)
    assert cache.cached_pages == 2


def test_a_lease_is_released_once() -> None:
    cache = make()
    lease = cache.match(pack([1, 2]), "")
    lease.release()
    with pytest.raises(AssertionError, match="released once"):
        lease.release()


@pytest.mark.parametrize("page_size", [1, 16])
def test_without_eviction_reuse_is_what_an_infinite_cache_would_reach(page_size: int) -> None:
    cache, oracle = make(2000, page_size=page_size), ReuseOracle()
    for step in range(60):
        tokens = [*range(step % 7 * 5), *([step % 3] * (step % 11)), 7, step % 5]
        assert run(cache, tokens) == oracle.reusable(pack(tokens), "")
        oracle.observe(pack(tokens), "")


def test_a_disabled_cache_shares_and_keeps_nothing() -> None:
    cache = make(enabled=False)
    assert [run(cache, list(range(10))) for _ in range(2)] == [0, 0]
    lease, table = admit(cache, list(range(10)))
    assert cache.insert(lease, pack(range(8)), table) == []
    assert (lease.length, cache.cached_pages, cache.peek(pack(range(10)), "")) == (0, 0, 0)
    cache.finish(lease, pack(range(10)), table)
    assert cache.free_count == 32


@pytest.mark.parametrize("stem", [8, 10], ids=["at a page's end", "inside a page"])
def test_a_key_continues_a_leaf_only_where_it_has_all_of_it_and_nobody_else_does(stem: int) -> None:
    cache = make()
    first, second = [*range(stem), 20, 21, 22], [*range(stem), 30, 31, 32]
    assert not cache.paths.continues_leaf(pack(first), "")
    run(cache, first)
    assert cache.paths.continues_leaf(pack([*first, 1, 2]), "")
    assert not cache.paths.continues_leaf(pack([*first, 1, 2]), "other")
    assert not cache.paths.continues_leaf(pack(second), ""), "it leaves the path before its end"
    run(cache, second)
    assert not cache.paths.continues_leaf(pack([*range(stem), 40]), ""), "others go on there"
    lease = cache.match(pack([*first, 1]), "")
    assert not cache.paths.continues_leaf(pack([*first, 1, 2]), "") or lease.tail is not None
    lease.release()
    assert cache.paths.continues_leaf(pack([*first, 1, 2]), "")
