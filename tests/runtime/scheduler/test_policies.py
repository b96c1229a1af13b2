"""Each policy's order, and what it takes into account."""

from __future__ import annotations

import random
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import Waiting, generating, sequence

from palmette.runtime.config import Policy
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.targets import Targets


def common(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def test_the_longest_prefix_then_arrival() -> None:
    waiting = Waiting("longest_prefix")
    four = [sequence(order, length=20) for order in range(4)]
    waiting.matched |= {four[2]: 9, four[3]: 9}
    waiting.add(*four)
    assert waiting.ids() == ["2", "3", "0", "1"]


def test_what_the_tree_comes_to_hold_brings_a_prefix_forward() -> None:
    waiting = Waiting("longest_prefix")
    waiting.add(
        sequence(0, tokens=[1, 2, 3, 4, 5]),
        sequence(1, tokens=[1, 2, 9, 9, 9]),
        sequence(2, tokens=[1, 2, 3, 4, 5], namespace="other"),
        sequence(3, tokens=[7, 7, 7]),
    )
    waiting.queue.grown("", pack([1, 2, 9, 9]), 0)
    assert waiting.ids() == ["1", "0", "2", "3"]
    waiting.queue.grown("", pack([1, 2, 3, 4, 5, 6]), 2)
    assert waiting.ids() == ["0", "1", "2", "3"], "matched at most all but the last token: four against four"


def test_what_was_evicted_is_noticed_when_it_is_next() -> None:
    waiting = Waiting("longest_prefix")
    three = [sequence(order, length=20) for order in range(3)]
    waiting.matched |= {three[1]: 9, three[2]: 5}
    waiting.add(*three)
    waiting.matched[three[1]] = 2
    assert waiting.ids() == ["1", "2", "0"], "the tree has lost nothing that it told of"
    waiting.evictions += 1
    assert waiting.ids() == ["2", "1", "0"]


@given(st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.booleans()), max_size=14))
def test_matches_follow_the_tree_whatever_it_learns(events: list[tuple[list[int], bool]]) -> None:
    """Against asking the tree again for each: the longest common prefix with anything learned."""
    waiting = Waiting("longest_prefix")
    learned: list[list[int]] = []
    expected: list[tuple[int, int]] = []

    def matched(tokens: list[int]) -> int:
        shared = [common(k, tokens) for k in learned]
        return min(max(shared, default=0), len(tokens) - 1)

    added: list[tuple[Sequence, list[int]]] = []
    for order, (tokens, grows) in enumerate(events):
        if grows:
            known = 0
            for key in learned:
                both = common(key, tokens)
                known = max(known, both)
            learned.append(tokens)
            waiting.queue.grown("", pack(tokens), known)
        else:
            one = sequence(order, tokens=tokens)
            waiting.matched[one] = matched(tokens)
            added.append((one, tokens))
            waiting.add(one)
    expected = sorted((-matched(tokens), one.order) for one, tokens in added)
    assert waiting.ids() == [str(order) for _, order in expected]


def test_depth_first_goes_where_most_wait_and_stays_there() -> None:
    waiting = Waiting("depth_first_weight")
    waiting.add(
        sequence(0, tokens=[9, 1, 1]),
        sequence(1, tokens=[5, 1, 1]),
        sequence(2, tokens=[5, 2, 1]),
        sequence(3, tokens=[5, 2, 2]),
        sequence(4, tokens=[9, 2, 1]),
    )
    assert waiting.ids() == ["2", "3", "1", "0", "4"]
    assert waiting.serve() == "2"
    waiting.add(*[sequence(order, tokens=[9, order, 3]) for order in range(5, 9)])
    assert waiting.ids()[:3] == ["3", "1", "0"], "the branch begun is finished, though more wait elsewhere now"


def test_depth_first_does_not_mix_namespaces() -> None:
    waiting = Waiting("depth_first_weight")
    for order in range(6):
        waiting.add(sequence(order, tokens=[1, 2, order], namespace="ab"[order % 2]))
    assert waiting.ids() == ["0", "2", "4", "1", "3", "5"]


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), max_size=16), st.randoms(use_true_random=False))
def test_depth_first_computes_each_prefix_once(keys: list[list[int]], rng: random.Random) -> None:
    """With room for one path and batch 1, what isn't the last one's prefix is computed: in all the trie's nodes."""
    waiting = Waiting("depth_first_weight")
    waiting.add(*[sequence(order, tokens=key) for order, key in enumerate(keys)])
    computed, last = 0, []
    while len(waiting.queue):
        best = keys[int(waiting.serve())]
        computed += len(best) - common(best, last)
        last = best
    assert computed == len({tuple(key[: end + 1]) for key in keys for end in range(len(key))})


def test_shortest_remaining_counts_what_is_to_prefill_and_to_generate() -> None:
    waiting = Waiting("shortest_remaining")
    short, cached, long = (sequence(order, length=length) for order, length in enumerate((20, 50, 10)))
    waiting.matched[cached] = 45
    waiting.add(generating(short, 10), generating(cached, 5), generating(long, 100, outputs=10))
    assert waiting.ids() == ["1", "0", "2"]


def test_the_earliest_deadline_goes_first_and_what_is_late_already_last() -> None:
    waiting = Waiting("deadline", seconds=0.1)  # a prefill of 10 tokens takes a second
    waiting.add(
        sequence(0, length=10, targets=Targets(ttft=9.0)),
        sequence(1, length=10, targets=Targets(ttft=3.0)),
        sequence(2, length=10),
        sequence(3, length=100, targets=Targets(ttft=5.0)),
        generating(sequence(4, length=10, targets=Targets(tpot=0.5, deadline=8.0)), 11),
    )
    assert waiting.ids() == ["1", "4", "0", "2", "3"], "the fourth needs ten seconds for its prefill"
    waiting.now = 2.5
    assert waiting.ids() == ["0", "2", "1", "3", "4"], (
        "2 s + 10 outputs of 0.5 s leave 3 s from arrival for a first token"
    )


def test_a_prefix_that_was_cached_makes_a_deadline_feasible() -> None:
    waiting = Waiting("deadline", seconds=0.1)
    one = sequence(0, tokens=list(range(1, 101)), targets=Targets(ttft=5.0))
    waiting.add(one, sequence(1, length=10, targets=Targets(ttft=6.0)))
    waiting.queue.grown("", pack(list(range(1, 81))), 0)
    assert waiting.ids() == ["0", "1"]


def test_tenants_take_turns_by_what_they_were_given() -> None:
    waiting = Waiting("fair_share")
    waiting.add(*[sequence(order, length=10, tenant="many") for order in range(4)])
    waiting.add(sequence(4, length=10, tenant="few"), sequence(5, length=30, tenant="few"))
    served = [waiting.serve() for _ in range(6)]
    assert served == ["4", "0", "5", "1", "2", "3"], "of equals by name; 10 and 10, then 40 and 10"


def test_outputs_count_and_who_was_away_has_saved_nothing() -> None:
    waiting = Waiting("fair_share")
    running = generating(sequence(0, length=10, tenant="a"), 100)
    waiting.add(running, sequence(1, length=10, tenant="b"))
    assert {waiting.serve(), waiting.serve()} == {"0", "1"}
    waiting.running.append(running)
    assert running.generation is not None
    running.generation.outputs = 20  # 40 tokens' worth
    waiting.add(sequence(2, tenant="a"), sequence(3, tenant="b"))
    assert waiting.ids() == ["3", "2"]
    waiting.add(sequence(4, tenant="new"))
    assert waiting.facts.shares.given("new") == 10, "it starts where the least served of the others is"


@pytest.mark.parametrize(
    "policy",
    ["longest_prefix", "first_come", "depth_first_weight", "priority", "deadline", "shortest_remaining", "fair_share"],
)
@given(data=st.data())
def test_every_policy_holds_exactly_who_waits(policy: Policy, data: st.DataObject) -> None:
    waiting = Waiting(policy, alpha=0.5, beta=20, seconds=0.01)
    expected: set[str] = set()
    for order in range(data.draw(st.integers(1, 25))):
        waiting.now += 0.1
        match data.draw(st.sampled_from(["add", "add", "serve", "remove", "grow", "evict"])):
            case "serve" if expected:
                expected.remove(waiting.serve(data.draw(st.integers(1, 30))))
            case "remove" if expected:
                gone = data.draw(st.sampled_from(sorted(expected)))
                waiting.queue.remove(next(each for each in waiting.queue if each.request_id == gone))
                expected.remove(gone)
            case "grow":
                waiting.queue.grown("", pack(data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))), 0)
            case "evict":
                waiting.evictions += 1
            case _:
                tokens = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
                ttft = data.draw(st.sampled_from([None, 0.5, 2.0]))
                waiting.add(
                    sequence(order, tokens=tokens, moment=order, priority=data.draw(st.integers(0, 1)), 
                             arrival=waiting.now, tenant=data.draw(st.sampled_from("ab")), targets=Targets(ttft=ttft))
                )  # fmt: skip
                expected.add(str(order))
        assert sorted(waiting.ids()) == sorted(expected)
        assert len(waiting.queue) == len(expected)
