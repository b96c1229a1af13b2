"""radix_cache.belady: the optimum against every schedule of tiny traces, and policies between nothing and it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.belady import belady_hits, infinite_hits, policy_hits
from palmette.radix_cache.eviction import LRU, EvictionName, eviction_policy

Path = tuple[int, ...]

requests_of = st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=8)
longer = st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=60)


def prefixes(request: Sequence[int]) -> list[Path]:
    return [tuple(request[: end + 1]) for end in range(len(request))]


def best_of_all_schedules(requests: Sequence[Sequence[int]], capacity: int) -> int:
    """Tries every prefix-closed set that could be kept after each request."""

    @cache
    def best(number: int, cached: frozenset[Path]) -> int:
        if number == len(requests):
            return 0
        wanted = prefixes(requests[number])
        after = cached | set(wanted)
        kept = (frozenset(some) for some in combinations(after, min(capacity, len(after))))
        closed = (some for some in kept if all(path[:-1] in some for path in some if len(path) > 1))
        return sum(path in cached for path in wanted) + max((best(number + 1, some) for some in closed), default=0)

    return best(0, frozenset())


@given(st.lists(st.lists(st.integers(0, 1), max_size=3), max_size=7), st.integers(1, 5))
def test_no_schedule_beats_the_optimum(requests: list[list[int]], capacity: int) -> None:
    assert belady_hits(requests, capacity) == best_of_all_schedules(requests, capacity)


@given(requests_of)
def test_infinite_hits_count_prefixes_seen_before(requests: list[list[int]]) -> None:
    seen: set[Path] = set()
    hits = 0
    for request in requests:
        hits += sum(path in seen for path in prefixes(request))
        seen.update(prefixes(request))
    assert infinite_hits(requests) == hits == belady_hits(requests, 1000)


@pytest.mark.parametrize("name", EvictionName.__args__)  # type: ignore[attr-defined]
@given(longer, st.integers(1, 40))
def test_no_policy_beats_the_optimum_nor_the_optimum_infinity(
    name: str, requests: list[list[int]], capacity: int
) -> None:
    optimum = belady_hits(requests, capacity)
    assert policy_hits(requests, capacity, eviction_policy(name)) <= optimum <= infinite_hits(requests)


def test_lru_by_hand() -> None:
    a, b, c = [1, 2], [3, 4], [5, 6]
    assert policy_hits([a, b, a, c, a, b], 4, LRU()) == 4
    assert belady_hits([a, b, a, c, a, b], 4) == 6
    assert policy_hits([a, b, a], 100, LRU()) == 2


def test_the_end_of_a_request_longer_than_the_cache_is_not_kept() -> None:
    assert policy_hits([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]], 3, LRU()) == 3 == belady_hits([[1, 2, 3, 4, 5]] * 2, 3)


def test_the_clock_reads_arrivals() -> None:
    requests = [[1], [2], [1], [3], [2]]
    ttl = eviction_policy("ttl")
    assert policy_hits(requests, 2, ttl, arrivals=[0.0, 1.0, 2.0, 3.0, 4.0]) == 1
