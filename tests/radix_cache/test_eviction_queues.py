"""radix_cache.eviction.queues: the lesser end of each queue against a search through all leaves, and what it costs."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.eviction.queues import Queues, Worth

STEPS = (0.0, 2.0, 5.0, 9.0, math.inf)  # ages between which worth stays
TABLE = ((1.0, 4.0, 3.0, 0.5), (2.0, 2.0, 6.0, 1.0), (3.0, 1.0, 0.5, 0.0))  # by class and age: rising, then falling


class Table:
    """Counts how often it is asked."""

    count = len(TABLE)

    def __init__(self) -> None:
        self.version = 0
        self.scale = 1.0
        self.asked = 0

    def worth(self, of: int, used: float, now: float) -> Worth:
        self.asked += 1
        at = bisect_right(STEPS, now - used) - 1
        return Worth(self.scale * TABLE[of][at], used + STEPS[at + 1])


class Leaf:
    def __init__(self, of: int, last_used: float) -> None:
        self.of = of
        self.last_used = last_used
        self.ticket: int | None = None


steps = st.lists(
    st.tuples(st.sampled_from("pppwett"), st.integers(0, 2), st.sampled_from([0.0, 0.5, 1.0, 3.0, 8.0])), max_size=80
)


@given(steps)
def test_what_comes_first_is_worth_no_more_than_anything_else(steps: list[tuple[str, int, float]]) -> None:
    table = Table()
    queues: Queues[Leaf] = Queues(table)
    live: list[Leaf] = []
    tickets, now = count(1), 10.0
    for step, of, time in steps:
        if step == "p":  # also of leaves that were used some time ago: parents of what was evicted
            live.append(leaf := Leaf(of, now - time))
            leaf.ticket = next(tickets)
            queues.push(of, leaf, leaf.ticket)
        elif step == "w" and live:
            live.pop(int(time) % len(live)).ticket = None
        elif step == "t":
            now += time
        elif step == "e" and of == 0:
            table.scale, table.version = table.scale + time, table.version + 1
        first = queues.first(now)
        assert set(queues.live()) == set(live)
        if first is None:
            assert not live
        else:
            assert first in live
            assert queues.least == min(table.worth(leaf.of, leaf.last_used, now).value for leaf in live)
    queues.clear()
    assert not queues.entries
    assert queues.first(now) is None


@pytest.mark.parametrize("leaves", [100, 10_000])
def test_a_choice_costs_the_same_among_many_leaves(leaves: int) -> None:
    table = Table()
    queues: Queues[Leaf] = Queues(table)
    for ticket in range(1, leaves + 1):
        leaf = Leaf(ticket % 3, ticket / leaves)
        leaf.ticket = ticket
        queues.push(leaf.of, leaf, ticket)
    for gone in range(50):
        first = queues.first(2.0 + gone)
        assert first is not None
        first.ticket = None
    assert table.asked <= 2 * 3 + 50 * 2 + 3 * 2 * len(STEPS)
    assert queues.entries <= 2 * leaves
    queues.compact()
    assert queues.entries == 2 * (leaves - 50)
