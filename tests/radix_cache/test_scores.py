"""radix_cache.scores through the cache: log-probabilities live and go with the tokens they belong to."""

from __future__ import annotations

import math
from array import array

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.invariants import check_invariants
from palmette.runtime.messages.tokens import pack

PAGE = 4
VALUES = array("f", [-0.1 * at for at in range(20)])  # float32, as they come from a worker


def run(cache: RadixCache, tokens: list[int]) -> None:
    lease = cache.match(pack(tokens), "")
    needed = -(-len(tokens) // PAGE) - len(lease.pages)
    lease.drop_tail()
    cache.finish(lease, pack(tokens), [*lease.pages, *cache.allocate(needed)])
    assert check_invariants(cache, []) == []


def grown(tokens: int = 12) -> RadixCache:
    cache = RadixCache(16, PAGE)
    run(cache, list(range(tokens)))
    return cache


def test_what_was_kept_comes_back_to_the_bit() -> None:
    cache = grown()
    cache.paths.keep_scores(pack(range(12)), "", 3, VALUES[3:9])
    assert cache.paths.scored(pack(range(12)), "", 3) == VALUES[3:9]
    assert cache.paths.scored(pack(range(12)), "", 5) == VALUES[5:9]
    assert cache.paths.scored(pack(range(6)), "", 3) == VALUES[3:6]
    assert not cache.paths.scored(pack(range(12)), "", 2), "the first isn't known"
    assert not cache.paths.scored(pack(range(12)), "", 9)
    assert not cache.paths.scored(pack(range(12)), "other", 3)


def test_gaps_end_it_and_nan_tells_nothing() -> None:
    cache = grown()
    cache.paths.keep_scores(pack(range(12)), "", 1, VALUES[1:4])
    cache.paths.keep_scores(pack(range(12)), "", 5, array("f", [math.nan, VALUES[6]]))
    assert cache.paths.scored(pack(range(12)), "", 1) == VALUES[1:4]
    cache.paths.keep_scores(pack(range(12)), "", 4, VALUES[4:6])
    assert cache.paths.scored(pack(range(12)), "", 1) == VALUES[1:7]
    cache.paths.keep_scores(pack(range(12)), "", 1, array("f", [-9.0]))
    assert cache.paths.scored(pack(range(12)), "", 1) == VALUES[1:7], "what is known stays"


def test_they_follow_their_tokens_through_splits_growth_and_eviction() -> None:
    cache = grown()
    cache.paths.keep_scores(pack(range(12)), "", 1, VALUES[1:12])
    run(cache, [*range(6), 77, 77, 77])
    assert cache.tree.node_count == 4
    assert cache.paths.scored(pack(range(12)), "", 1) == VALUES[1:12]
    assert cache.paths.scored(pack([*range(6), 77]), "", 1) == VALUES[1:4], (
        "of the page that has 77 in it nothing is known"
    )
    lease = cache.match(pack(range(16)), "")
    table = [*lease.pages, *cache.allocate(1)]
    cache.insert(lease, pack(range(16)), table)
    assert cache.paths.scored(pack(range(16)), "", 1) == VALUES[1:12]
    cache.finish(lease, pack(range(16)), table)
    cache.paths.keep_scores(pack(range(16)), "", 12, VALUES[12:16])
    assert cache.paths.scored(pack(range(16)), "", 1) == VALUES[1:16]
    cache.clear()
    run(cache, list(range(12)))
    assert not cache.paths.scored(pack(range(12)), "", 1)


def test_a_page_that_becomes_full_keeps_what_was_known_of_it() -> None:
    cache = grown(6)
    cache.paths.keep_scores(pack(range(6)), "", 1, VALUES[1:6])
    run(cache, list(range(8)))
    assert cache.tree.node_count == 2
    assert cache.paths.scored(pack(range(8)), "", 1) == VALUES[1:6]


def test_only_what_is_cached_is_kept() -> None:
    cache = grown(8)
    cache.paths.keep_scores(pack(range(12)), "", 4, VALUES[4:12])
    run(cache, list(range(12)))
    assert cache.paths.scored(pack(range(12)), "", 4) == VALUES[4:8]
    cache.paths.keep_scores(pack([50, 51]), "", 1, VALUES[1:2])
    assert not cache.paths.scored(pack([50, 51]), "", 1)
    assert check_invariants(cache, []) == []


def test_what_might_have_come_next_goes_with_the_token_before() -> None:
    cache = grown()
    kept = {3: {70: -1.0}, 6: {71: -2.0, 72: -3.0}, 12: {73: -4.0}}
    cache.paths.keep_beside(pack(range(12)), "", {**kept, 13: {74: -5.0}})
    assert cache.paths.beside(pack(range(12)), "", 1) == kept, "nothing is cached before the last one"
    run(cache, [*range(4), 50, 51])  # splits the node
    assert cache.paths.beside(pack(range(12)), "", 1) == kept
    assert cache.paths.beside(pack(range(6)), "", 4) == {6: kept[6]}
    assert cache.paths.beside(pack([*range(4), 50]), "", 1) == {3: kept[3]}
    assert not cache.paths.beside(pack(range(12)), "other", 1)
    lease = cache.match(pack([*range(12), 99]), "")
    cache.finish(lease, pack(range(16)), [*lease.pages, *cache.allocate(1)])  # grows it
    assert cache.paths.beside(pack(range(16)), "", 1) == kept
    cache.paths.keep_beside(pack(range(6)), "", {6: {75: -6.0}})
    assert cache.paths.beside(pack(range(16)), "", 6) == {6: {**kept[6], 75: -6.0}, 12: kept[12]}
    cache.clear()
    assert not cache.paths.beside(pack(range(16)), "", 1)


def test_what_might_have_come_next_is_trimmed_and_taken_over_with_its_page() -> None:
    cache = grown(6)
    cache.paths.keep_beside(pack(range(6)), "", {4: {70: -1.0}, 6: {71: -2.0}})
    run(cache, list(range(8)))  # the page that was not full is
    assert cache.paths.beside(pack(range(8)), "", 1) == {4: {70: -1.0}, 6: {71: -2.0}}
    held = cache.allocate(cache.free_count + 1)  # the last page has to go
    assert cache.paths.beside(pack(range(8)), "", 1) == {4: {70: -1.0}}
    cache.free(held)
    assert check_invariants(cache, []) == []


def test_of_one_place_only_so_many_are_kept() -> None:
    cache = grown()
    for first in range(0, 5000, 500):
        cache.paths.keep_beside(pack(range(12)), "", {5: dict.fromkeys(range(first, first + 500), -1.0)})
    known = cache.paths.beside(pack(range(12)), "", 5)[5]
    assert 500 <= len(known) <= 1024
    assert 4999 in known


def test_of_all_places_of_a_node_only_so_many_are_kept() -> None:
    """What many choices behind each token of a text leave is a share of what its KV takes."""
    cache = grown()
    for place in range(1, 13):
        cache.paths.keep_beside(pack(range(12)), "", {place: dict.fromkeys(range(1000), -1.0)})
    known = cache.paths.beside(pack(range(12)), "", 1)
    assert sum(map(len, known.values())) <= 1024 + 4 * 12
    assert len(known[12]) == 1000, "the last ones stay"
    run(cache, [*range(4), 50, 51])  # splits the node
    for place in range(1, 13):
        cache.paths.keep_beside(pack(range(12)), "", {place: dict.fromkeys(range(200), -1.0)})
    known = cache.paths.beside(pack(range(12)), "", 1)
    assert [place for place in known if place <= 4] == [1, 2, 3, 4]
    assert sum(len(known[place]) for place in known if place > 4) == 1000, "and no more than have to go"
