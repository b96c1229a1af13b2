"""radix_cache.node: the ordered children, and the theorem that two neighbours are enough."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache import node as node_module
from palmette.radix_cache.key import common_tokens
from palmette.radix_cache.node import Children, Node
from palmette.runtime.messages.tokens import pack

KEYS = st.lists(st.sampled_from([0, 1, 2, 256, 65537, -1]), min_size=1, max_size=4).map(pack)


def leaf(key: bytes) -> Node:
    return Node(key, array("i", [0]), None, 0.0)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "CHUNK", 2)


@given(st.sets(KEYS, max_size=30), KEYS)
def test_the_longest_common_run_with_any_child_is_with_a_neighbour(keys: set[bytes], key: bytes) -> None:
    children = Children()
    for each in keys:
        children.add(leaf(each))
    best = max((common_tokens(key, each) for each in keys), default=0)
    before, after = children.neighbours(key)
    assert max((common_tokens(key, near.key) for near in (before, after) if near is not None), default=0) == best
    assert before is None or before.key < key
    assert after is None or after.key >= key


@given(st.lists(KEYS, unique=True, max_size=60), st.randoms(use_true_random=False))
def test_children_stay_in_order_through_adding_and_removing(keys: list[bytes], rng: random.Random) -> None:
    children = Children()
    kept: dict[bytes, Node] = {}
    for key in keys:
        kept[key] = leaf(key)
        children.add(kept[key])
        if rng.random() < 0.4:
            children.remove(kept.pop(rng.choice(list(kept))))
        assert [child.key for child in children] == sorted(kept)
        assert len(children) == len(kept)
        assert bool(children) == bool(kept)
    for key, node in kept.items():
        assert children.neighbours(key).after is node
        longer = leaf(key + b"....")
        children.replace(node, longer)
        assert children.starting_with(key) is longer
        children.discard(longer)
    assert not children


def test_a_child_is_found_by_what_its_key_starts_with() -> None:
    children = Children()
    for tokens in ([1, 2, 3, 4], [1, 2], [5]):
        children.add(leaf(pack(tokens)))
    found = children.starting_with(pack([1, 2, 3]))
    assert found is not None
    assert found.key == pack([1, 2, 3, 4])
    assert children.starting_with(pack([1, 3])) is None
    assert children.starting_with(pack([9])) is None


def test_leaves_share_one_empty_set_until_they_have_children() -> None:
    parent, other = leaf(pack([1])), leaf(pack([2]))
    assert parent.children is other.children
    parent.adopt(child := leaf(pack([3])))
    assert list(parent.children) == [child]
    assert not other.children
    parent.children.remove(child)
    assert not parent.children
