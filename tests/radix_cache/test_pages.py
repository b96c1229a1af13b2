"""radix_cache.pages: the free list."""

from __future__ import annotations

import pytest

from palmette.radix_cache.pages import OutOfPages, PageId, PagePool


def test_pages_are_taken_and_given_back() -> None:
    pool = PagePool(4)
    assert list(pool.take(3)) == [0, 1, 2]
    assert pool.free_count == 1
    pool.give_back([PageId(1)])
    assert sorted(pool.free_pages()) == [1, 3]
    assert list(pool.take(0)) == []


def test_too_many_are_refused_with_the_numbers_and_nothing_is_taken() -> None:
    pool = PagePool(4)
    pool.take(3)
    with pytest.raises(OutOfPages, match="2 KV pages are needed; 1 are free and 0 evictable, of 4") as refusal:
        pool.take(2)
    assert refusal.value.retryable
    assert (refusal.value.needed, refusal.value.free) == (2, 1)
    assert pool.free_count == 1


def test_a_page_is_freed_once() -> None:
    pool = PagePool(2)
    [page] = pool.take(1)
    pool.give_back([page])
    with pytest.raises(AssertionError, match="freed twice"):
        pool.give_back([page])


def test_quarantined_pages_are_never_handed_out_again() -> None:
    pool = PagePool(4)
    [held] = pool.take(1)
    pool.quarantine([held, PageId(2)])
    assert sorted(pool.free_pages()) == [1, 3]
    pool.give_back([held])
    assert list(pool.take(2)) == [1, 3]
    assert pool.free_count == 0
