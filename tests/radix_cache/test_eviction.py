"""radix_cache.eviction: the lazy heap against a sorted list."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.eviction import LRU, SLACK, EvictionOrder, EvictionPolicy, Rank
from palmette.radix_cache.node import Node


def leaf(last_used: float) -> Node:
    return Node(b"....", array("i", [0]), None, last_used)


def drain(order: EvictionOrder) -> list[Node]:
    drained = []
    while (node := order.first()) is not None:
        order.withdraw(node)
        drained.append(node)
    return drained


def test_least_recently_used_goes_first() -> None:
    order = EvictionOrder(LRU())
    nodes = [leaf(time) for time in (3.0, 1.0, 2.0)]
    for node in nodes:
        order.push(node)
    assert order.first() is order.first() is nodes[1]
    nodes[1].last_used = 4.0
    order.push(nodes[1])
    assert drain(order) == [nodes[2], nodes[0], nodes[1]]


def test_a_policy_is_one_method() -> None:
    class MostUsesStay(EvictionPolicy):
        def rank(self, node: Node, now: float) -> Rank:
            return Rank(node.uses)

    order = EvictionOrder(MostUsesStay())
    often, seldom = leaf(0.0), leaf(9.0)
    often.uses, seldom.uses = 5, 1
    for node in (often, seldom):
        order.push(node)
    assert drain(order) == [seldom, often]


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("pppw")), max_size=400))
def test_order_equals_a_sorted_list_and_stale_entries_stay_bounded(steps: list[tuple[int, str]]) -> None:
    order = EvictionOrder(LRU())
    nodes = [leaf(0.0) for _ in range(10)]
    entered: dict[int, float] = {}
    for now, (index, step) in enumerate(steps):
        entered.pop(index, None)
        if step == "p":
            nodes[index].last_used = entered[index] = float(now)
            order.push(nodes[index])
        else:
            order.withdraw(nodes[index])
        assert order.live == len(entered)
        assert len(order) <= 2 * order.live + SLACK
        assert order.live_nodes() == {nodes[i] for i in entered}
    assert drain(order) == [nodes[i] for i in sorted(entered, key=lambda i: entered[i])]
