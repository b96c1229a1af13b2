"""radix_cache.tree: the best tail against brute force, and what a split does to those who copy."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.eviction import LRU, EvictionOrder
from palmette.radix_cache.key import common_tokens
from palmette.radix_cache.pins import Pins
from palmette.radix_cache.tree import RadixTree
from palmette.runtime.messages.tokens import pack

PAGE = 4
TOKENS = st.sampled_from([0, 1, 256, 65537])


def tree() -> RadixTree:
    return RadixTree(PAGE, EvictionOrder(LRU()), lambda: 0.0, Pins(100))


@given(
    st.lists(st.lists(TOKENS, min_size=1, max_size=PAGE), max_size=20, unique_by=tuple),
    st.lists(TOKENS, min_size=1, max_size=PAGE),
)
def test_the_best_tail_is_the_best_of_all_children(keys: list[list[int]], wanted: list[int]) -> None:
    grown = tree()
    root = grown.root("")
    for page, key in enumerate(keys):
        grown.add(root, pack(key), array("i", [page]), leases=0)
    best = max((common_tokens(pack(wanted), pack(key)) for key in keys), default=0)
    found = grown.best_tail(root, pack(wanted), 0)
    assert (found.tokens if found else 0) == best
    if found is not None:
        assert common_tokens(pack(wanted), found.child.key) == best


def test_the_child_before_wins_where_it_shares_more() -> None:
    grown = tree()
    root = grown.root("")
    before = grown.add(root, pack([1, 1, 1, 0]), array("i", [0]), leases=0)
    grown.add(root, pack([1, 2, 0, 0]), array("i", [1]), leases=0)
    found = grown.best_tail(root, pack([1, 1, 1, 1]), 0)
    assert found is not None
    assert (found.child, found.tokens) == (before, 3)


def test_a_split_leaves_the_lower_part_its_identity_and_moves_the_tail_up() -> None:
    grown = tree()
    root = grown.root("")
    node = grown.add(root, pack(range(12)), array("i", [5, 6, 7]), leases=0)
    grown.lock_tail(node)
    assert grown.evictable == 2
    upper = grown.split(node, 1)
    assert (upper.key, upper.pages.tolist(), upper.tails) == (pack(range(4)), [5], 1)
    assert (node.key, node.pages.tolist(), node.tails) == (pack(range(4, 12)), [6, 7], 0)
    assert (node.parent, upper.parent) == (upper, root)
    assert grown.evictable == 2
    assert grown.evict(2).tolist() == [7, 6] or grown.page_count == 1
    grown.unlock_tail(upper)
    assert grown.evict(1).tolist() == [5]
    assert not grown.roots


def test_a_long_leaf_is_trimmed_from_its_end() -> None:
    grown = tree()
    node = grown.add(grown.root(""), pack(range(12)), array("i", [5, 6, 7]), leases=0)
    assert grown.evict(1).tolist() == [7]
    assert node.key == pack(range(8))
    assert grown.evict(2).tolist() == [5, 6]
    assert (grown.node_count, grown.page_count, grown.evictable) == (0, 0, 0)
