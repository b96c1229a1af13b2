"""Who gives way, and what it costs."""

from __future__ import annotations

from engine_harness import generate
from hash_harness import HashHarness, alone
from waiting import generating, sequence

from palmette.radix_cache.pages import PageId
from palmette.runtime.scheduler.retraction import AdmissionHold, Growth, growth_victim, lost_work, preempted, protected
from palmette.runtime.scheduler.sequence import Sequence


def running(order: int, pages: list[int], computed: int, priority: int = 0) -> Sequence:
    one = sequence(order, priority=priority)
    one.pages, one.computed = [PageId(page) for page in pages], computed
    return one


def test_what_another_holds_too_is_not_lost() -> None:
    one, other, third = running(0, [1, 2, 3], 11), running(1, [1, 2, 4, 5], 14), running(2, [6], 2)
    assert lost_work([one, other, third], 4) == {one: 3, other: 6, third: 2}


def test_the_least_work_is_lost_and_never_that_of_the_first() -> None:
    first, long, short, tied = (
        running(0, [1], 1), running(1, [2, 3, 4], 12), running(2, [5, 6], 5), running(3, [7, 8], 5)
    )  # fmt: skip
    assert growth_victim([first, long, short, tied], 4) is tied
    assert growth_victim([first, long], 4) is long


def test_lower_priorities_give_way_first_and_the_highest_keeps_its_first() -> None:
    low, high, second = running(0, [1], 1), running(1, [2], 4, priority=1), running(2, [3], 4, priority=1)
    assert protected([low, high, second]) is high
    assert growth_victim([low, high, second], 4) is low
    assert growth_victim([high, second], 4) is second


def test_only_as_many_lower_ones_are_displaced_as_it_takes() -> None:
    four = [running(0, [1, 2, 3], 12), running(1, [4, 5], 5), running(2, [6], 4, priority=1), running(3, [7], 1)]
    assert preempted(four, 1, 4, pages=2, slot=False) == [four[3]]
    assert preempted(four, 1, 4, pages=3, slot=False) == [four[3], four[1]]
    assert preempted(four, 1, 4, pages=0, slot=True) == [four[3]]
    assert preempted(four, 1, 4, pages=99, slot=True) == [], "nobody, where it would not help"
    assert preempted(four[2:3], 1, 4, pages=0, slot=True) == []


def test_the_hold_ends_with_slack_or_when_nothing_runs() -> None:
    hold = AdmissionHold(5)
    hold.begin()
    hold.look(4, 2)
    assert hold.active
    hold.look(5, 2)
    assert not hold.active
    hold.begin()
    hold.look(0, 0)
    assert not hold.active


def test_a_higher_priority_takes_the_slot_or_the_pages_of_a_lower_one() -> None:
    for options in ({"max_running": 2}, {"pages": 9}):
        harness = HashHarness(policy="priority", **options)
        low = [generate(f"low{i}", [1 + i, 2, 3], max_tokens=24, ignore_eos=True) for i in range(2)]
        for request in low:
            harness.core.submit(request)
        for _ in range(8):
            harness.step()
        high = generate("high", [9] * 20, max_tokens=3, priority=5, ignore_eos=True)
        harness.core.submit(high)
        for _ in range(5):
            harness.step()
        assert harness.answer("high") == alone(high), "it did not wait for the others' 24 tokens"
        harness.run()
        counters = harness.core.counters()
        assert (counters.preemptions, counters.finished) == (1, 3)
        assert [harness.answer(request.id) for request in low] == [alone(request) for request in low]


def test_other_policies_displace_nobody() -> None:
    harness = HashHarness(max_running=1)
    harness.core.submit(generate("low", [1, 2, 3], max_tokens=12, ignore_eos=True))
    harness.step()
    harness.run(generate("high", [9] * 5, max_tokens=3, priority=5))
    assert harness.core.counters().retractions == 0


def test_equals_never_displace_one_another() -> None:
    harness = HashHarness(policy="priority", max_running=1)
    harness.run(*[generate(f"r{i}", [1 + i, 2], max_tokens=6, priority=3, ignore_eos=True) for i in range(4)])
    assert harness.core.counters().preemptions == 0


def test_after_a_retraction_there_is_slack_before_the_next_is_admitted() -> None:
    """Two retractions in all, where without the hold each newcomer would be the next to go."""
    harness = HashHarness(pages=32, page_size=4, max_running=8, policy="first_come")
    requests = [generate(f"r{i}", [1 + i % 20, 2, 3, 4], max_tokens=20, ignore_eos=True) for i in range(30)]
    harness.run(*requests)
    assert harness.core.counters().retractions <= 30
    assert [harness.answer(request.id) for request in requests] == [alone(request) for request in requests]


def test_growth_expects_outputs_as_long_as_recent_ones_and_never_longer_than_they_may_be() -> None:
    growth = Growth(4)
    one, other = generating(running(0, [1, 2], 6), 100, outputs=1), generating(running(1, [3, 4], 6), 3, outputs=2)
    assert growth.pages([one, other]) == 2, "nothing is known: a page each"
    for _ in range(2000):
        growth.ended(21)
    assert growth.pages([other]) == 1
    assert growth.pages([one]) == 5, "6 tokens + 20 to come are 7 pages, two of them there"
    assert growth.pages([running(2, [5], 3)]) == 1, "a score does not grow"


def test_what_outputs_are_expected_to_need_is_not_given_to_others() -> None:
    harness = HashHarness(pages=32, page_size=4, max_running=8, policy="first_come")
    harness.run(*[generate(f"w{i}", [1 + i, 2], max_tokens=20, ignore_eos=True) for i in range(20)])
    before = harness.core.counters().retractions
    requests = [generate(f"r{i}", [1 + i % 20, 2, 3, 4], max_tokens=20, ignore_eos=True) for i in range(30)]
    harness.run(*requests)
    assert harness.core.counters().retractions - before <= 6
    assert [harness.answer(request.id) for request in requests] == [alone(request) for request in requests]
