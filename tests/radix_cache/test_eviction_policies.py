"""radix_cache.eviction policies: what each prefers, and the lazy heap against a search through all leaves."""

from __future__ import annotations

import gc
import math
import tracemalloc
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.radix_cache.belady import belady_hits, policy_hits
from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.eviction import EvictionName, EvictionOrder, EvictionPolicy, Rank, eviction_policy
from palmette.radix_cache.eviction.learned import HitDensity
from palmette.radix_cache.eviction.programs import ProgramAware
from palmette.radix_cache.eviction.survival import AGES, EDGES, Survival, Tempos, Weights, _best_rates, age_bin
from palmette.radix_cache.hints import Hint
from palmette.radix_cache.invariants import check_invariants
from palmette.radix_cache.node import Node
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.tokens import pack

NAMES = get_args(EvictionName)
STATELESS = ("lru", "lfu", "slru", "priority", "ttl")
CLASSES = ("learned", "program")


class Searched(EvictionOrder):
    """Looks at every leaf each time."""

    def __init__(self, policy: EvictionPolicy, clock: Callable[[], float]) -> None:
        super().__init__(policy, clock)
        self.ranks: dict[Node, tuple[Rank, int]] = {}
        self.numbers = count(1)

    def push(self, node: Node) -> None:
        number = next(self.numbers)
        self.ranks[node] = (self.policy.rank(node, self.clock()), number)
        node.ticket = number

    def withdraw(self, node: Node) -> None:
        node.ticket = None
        self.ranks.pop(node, None)

    def first(self, now: float | None = None) -> Node | None:
        now = self.clock()
        over = [(rank.until, number, node) for node, (rank, number) in self.ranks.items() if rank.until <= now]
        for _, _, node in sorted(over, key=lambda each: each[:2]):
            self.push(node)
        if not self.ranks:
            return None
        node = min(self.ranks, key=lambda node: (self.ranks[node][0][:2], self.ranks[node][1]))
        self.policy.chosen(self.ranks[node][0])
        return node


class Checked(EvictionOrder):
    """Compares the rank of what it gives up with those of all leaves at that moment."""

    def __init__(self, policy: EvictionPolicy, clock: Callable[[], float], follow: bool = False) -> None:
        super().__init__(policy, clock)
        if follow:
            assert isinstance(policy, ProgramAware)
            assert isinstance(policy.base, HitDensity)
            policy.base._duel.follows_learned = True
            policy.base._next_table = -math.inf  # after each request

    def first(self, now: float | None = None) -> Node | None:
        node = super().first(now)
        if node is not None:
            now = self.clock()
            lowest = min(self.policy.rank(leaf, now)[:2] for leaf in self.live_nodes())
            rank = self.policy.rank(node, now)
            assert rank.worth == lowest[0]
            if self.policy.classes is None or math.isinf(rank.worth):
                assert rank[:2] == lowest
        return node


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def replay(order: Callable[[EvictionPolicy, Clock], EvictionOrder], name: str, steps: Sequence[Step]) -> list[object]:
    """Runs requests, with priorities and hints, and returns what they matched and what is left."""
    clock = Clock()
    cache = RadixCache(12, 2, eviction=eviction_policy(name), clock=clock)
    cache.tree.order = order(cache.tree.order.policy, clock)
    seen: list[object] = []
    for pause, request, priority, hint in steps:
        clock.now += pause
        key = pack(request)
        lease = cache.match(key, "a", priority=priority)
        seen.append(lease.length)
        own = cache.allocate(-(-len(request) // 2) - len(lease.pages))
        lease.drop_tail()
        cache.finish(lease, key, [*lease.pages, *own])
        if hint is not None:
            after, last, wait = hint
            cache.paths.hint(
                key, "a", Hint(clock.now + after if after else None, last, clock.now + wait if wait else None)
            )
        seen.append(sorted(node.key for node in cache.tree.nodes()))
    return seen


Step = tuple[float, list[int], int, tuple[float, bool, float] | None]
pauses = st.sampled_from([0.0, 0.5, 1.0, 40.0, 700.0])
hints = st.none() | st.tuples(st.sampled_from([0.0, 1.0, 50.0]), st.booleans(), st.sampled_from([0.0, 2.0, 900.0]))
traces = st.lists(
    st.tuples(pauses, st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(0, 2), hints), max_size=40
)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(CLASSES)))
@settings(max_examples=40)
@given(traces)
def test_the_heap_gives_up_what_a_search_through_all_leaves_would(name: str, steps: list[Step]) -> None:
    assert replay(EvictionOrder, name, steps) == replay(Searched, name, steps)


@pytest.mark.parametrize("name", [*STATELESS, *CLASSES])
@settings(max_examples=40)
@given(traces)
def test_nothing_is_given_up_while_something_is_worth_less_now(name: str, steps: list[Step]) -> None:
    replay(Checked, name, steps)


@settings(max_examples=10)
@given(traces)
def test_what_has_been_learned_is_followed_to_the_letter(steps: list[Step]) -> None:
    """As above, with tables that are made anew after each request, and recency out of the game."""
    replay(partial(Checked, follow=True), "program", steps)


def node(**values: object) -> Node:
    made = Node(pack([1]), array("i", [0]), Node(b"", array("i"), None, 0.0), 0.0)
    for field, value in values.items():
        setattr(made, field, value)
    return made


def first_of(name: str, now: float, *nodes: Node) -> Node:
    policy = eviction_policy(name)
    return min(nodes, key=lambda each: policy.rank(each, now))


def test_what_each_policy_gives_up_first() -> None:
    old, often = node(last_used=1.0, uses=0, priority=1), node(last_used=0.0, uses=9, priority=2)
    assert first_of("lru", 2.0, old, often) is often
    assert first_of("lfu", 2.0, old, often) is old
    assert first_of("slru", 2.0, old, often) is old
    assert first_of("priority", 2.0, old, often) is old
    assert first_of("ttl", 2.0, old, often) is often
    assert first_of("cost", 2.0, old, often) is old


def test_what_costs_more_to_recompute_stays() -> None:
    root = Node(b"", array("i"), None, 0.0)
    above = Node(pack(range(20_000)), array("i", range(20_000)), root, 0.0)
    shallow, deep = node(parent=root, last_used=1.0), node(parent=above)
    assert first_of("cost", 2.0, deep, shallow) is shallow


def test_a_ttl_ends_while_the_leaf_waits() -> None:
    clock = Clock()
    order = EvictionOrder(eviction_policy("ttl"), clock)
    often, seldom = node(last_used=0.0, uses=5), node(last_used=1.0, uses=0)
    for each in (often, seldom):
        order.push(each)
    assert order.first() is often
    clock.now = 601.0  # both are over: least used first
    assert order.first() is seldom


def test_hints_order_what_is_known_and_fade() -> None:
    clock = Clock()
    order = EvictionOrder(eviction_policy("program"), clock)
    nodes = {
        "soon": node(hint=Hint(next_use=5.0)),
        "later": node(hint=Hint(next_use=50.0)),
        "tool": node(hint=Hint(waits_until=20.0)),
        "unknown": node(last_used=0.0),
        "dead": node(hint=Hint(last_use=True)),
    }
    for each in nodes.values():
        order.push(each)
    gone = []
    while (leaf := order.first()) is not None:
        gone.append(next(name for name, each in nodes.items() if each is leaf))
        order.withdraw(leaf)
    assert gone == ["dead", "unknown", "later", "tool", "soon"]
    order.push(nodes["soon"])
    nodes["unknown"].last_used = 4.0
    order.push(nodes["unknown"])
    clock.now = 6.0  # the use that was announced never came
    assert order.first() is nodes["soon"]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="'mru'") as refused:
        eviction_policy("mru")
    assert "learned" in str(refused.value.hint)


# Learning


def test_edges_and_bins_agree() -> None:
    for age in range(1, AGES - 1):
        assert age_bin(EDGES[age] * 1.0001) == age
        assert age_bin(EDGES[age + 1] * 0.9999) == age


def test_what_has_seldom_been_seen_is_learned_at_once() -> None:
    """Behind many observations that move nothing any more, the same one moves a new weight far."""
    weights = Weights(2, variance=0.3)
    for _ in range(500):
        weights.move(0, 0.0, certainty=0.2)
    known = weights.means[0]
    weights.move(0, 0.5, certainty=0.2)
    weights.move(1, 0.5, certainty=0.2)
    assert weights.means[1] > 10 * (weights.means[0] - known) > 0
    for _ in range(10**5):
        weights.move(0, 0.0, certainty=0.2)
    assert weights.variances[0] > 0, "what has changed can be learned anew"


def test_worth_follows_what_happened() -> None:
    """Of trait 0 all are used again after 100, of trait 1 none: waiting for the first is worth more, until then."""
    survival = Survival(2, traits=1)
    for start in range(600):
        now = float(start)
        if start >= 100 and start % 2 == 0:
            survival.again(start - 100, now)
        survival.advance(now)
        assert survival.uses.add(now, 0, [start % 2]) == start
    survival.renew()

    def worth(trait: int, age: float) -> float:
        return survival.worth(survival.class_of(survival.score([trait]), survival.pace_of(None, False)), 0.0, age).value

    assert worth(0, 50.0) > 3 * worth(1, 50.0)
    assert worth(0, 90.0) > 2 * worth(0, 200.0)


def test_the_best_rate_is_that_of_the_best_time_to_give_up() -> None:
    chance = np.random.default_rng(1).uniform(0.0, 0.4, AGES)
    width = np.diff(np.array(EDGES))

    def rate(age: int, end: int) -> float:
        used = held = 0.0
        waiting = 1.0
        for at in range(age, end):
            used += waiting * chance[at]
            held += waiting * (1 - chance[at] / 2) * width[at]
            waiting *= 1 - chance[at]
        return used / held

    best = np.array([max(rate(age, end) for end in range(age + 1, AGES + 1)) for age in range(AGES)])
    rising, falling = np.maximum.accumulate(best), np.maximum.accumulate(best[::-1])[::-1]
    assert _best_rates(chance[None])[0] == pytest.approx(np.minimum(rising, falling), rel=1e-9)


def test_what_is_certain_or_impossible_has_a_rate() -> None:
    rates = _best_rates(np.array([[1.0] * AGES, [0.0] * AGES]))
    assert np.isfinite(rates).all()
    assert (rates[0] > 0).all()
    assert (rates[1] == 0).all()


def test_worth_rises_then_falls() -> None:
    rates = _best_rates(np.random.default_rng(0).uniform(0.0, 0.3, (50, AGES)))
    for row in rates:
        peak = int(row.argmax())
        assert (np.diff(row[: peak + 1]) >= 0).all()
        assert (np.diff(row[peak:]) <= 0).all()


def test_thirds_follow_the_gaps() -> None:
    random, tempos = Random(0), Tempos()
    assert tempos.of(None) == tempos.of(5.0) == 0
    for _ in range(2000):
        tempos.learn(random.lognormvariate(5.0, 1.0))
    found = [tempos.of(random.lognormvariate(5.0, 1.0)) for _ in range(900)]
    assert all(200 < found.count(third) < 400 for third in (1, 2, 3))


def mixed(requests: int) -> list[list[int]]:
    """A quarter of the requests come again 58 later, once; the others never do."""
    trace = []
    for number in range(requests):
        base = 10 * (number - 58 if number % 4 == 2 and number > 58 else number) + 1
        length = 4 if number % 4 in (0, 2) else 9
        trace.append(list(range(base, base + length)))
    return trace


def test_it_learns_to_keep_what_comes_back() -> None:
    trace = mixed(3000)
    total = sum(map(len, trace))
    capacity = total // 100
    lru, learned = (policy_hits(trace, capacity, eviction_policy(name)) for name in ("lru", "learned"))
    assert lru < 0.05 * total
    assert learned > lru + 0.3 * (belady_hits(trace, capacity) - lru)


@pytest.mark.parametrize("page_size", [1, 4])
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=14), max_size=40))
def test_invariants_hold_while_it_learns(page_size: int, requests: list[list[int]]) -> None:
    clock, learner = Clock(), HitDensity()
    cache = RadixCache(16, page_size, eviction=learner, clock=clock)
    for request in requests:
        clock.now += 1.0
        key = pack(request)
        lease = cache.match(key, "a")
        own = cache.allocate(-(-len(request) // page_size) - len(lease.pages))
        lease.drop_tail()
        cache.finish(lease, key, [*lease.pages, *own])
        assert not check_invariants(cache, private=())
        assert learner._cached == sum(len(node.key) for node in cache.tree.nodes())


@pytest.mark.slow
def test_a_request_leaves_no_memory_behind() -> None:
    """Thousands of requests, all different, cost what hundreds did: what is remembered has fixed places."""
    clock, random = Clock(), Random(0)
    cache = RadixCache(64, 16, eviction=eviction_policy("program"), clock=clock)

    def held_after(requests: int) -> int:
        for _ in range(requests):
            clock.now += 1.0
            key = random.randbytes(4 * random.randint(40, 400))
            lease = cache.match(key, "a")
            own = cache.allocate(-(-len(key) // 64) - len(lease.pages))
            lease.drop_tail()
            cache.finish(lease, key, [*lease.pages, *own], generated=random.randint(1, 300))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = held_after(500)
        assert held_after(3000) - first < 100 * 3000
    finally:
        tracemalloc.stop()
