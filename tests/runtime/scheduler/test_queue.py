"""Who is next: priority, then who waited too long, then the longest prefix, then arrival."""

from __future__ import annotations

import pytest

from palmette.runtime.config import Policy
from palmette.runtime.scheduler.queue import PATIENCE, WINDOW, WaitingQueue
from palmette.runtime.scheduler.sequence import Sequence


def sequence(order: int, *, priority: int = 0, retractions: int = 0) -> Sequence:
    return Sequence(
        str(order), bytearray(4), 1, "", order=order, arrival=0.0, priority=priority, retractions=retractions
    )


def ids(queue: WaitingQueue, matched: dict[str, int] | None = None) -> list[str]:
    return [each.request_id for each, _ in queue.in_order(lambda waiting: (matched or {}).get(waiting.request_id, 0))]


@pytest.mark.parametrize("policy", ["longest_prefix", "first_come"])
def test_a_higher_priority_goes_first_however_many_wait(policy: Policy) -> None:
    queue = WaitingQueue(policy)
    for order in range(3 * WINDOW):
        queue.add(sequence(order))
    queue.add(sequence(1000, priority=1))
    assert ids(queue)[:2] == ["1000", "0"]
    assert len(queue) == 3 * WINDOW + 1


def test_the_longest_prefix_then_arrival() -> None:
    queue = WaitingQueue("longest_prefix")
    for order in range(4):
        queue.add(sequence(order))
    assert ids(queue, {"2": 9, "3": 9}) == ["2", "3", "0", "1"]


def test_among_those_that_waited_too_long_arrival_alone_counts() -> None:
    """Else one with a short prefix could be passed over forever by others that have waited too long as well."""
    queue = WaitingQueue("longest_prefix")
    first, second = sequence(0), sequence(1)
    queue.add(first)
    queue.add(second)
    for order in range(2, 3 + PATIENCE):
        late = sequence(order)
        queue.add(late)
        queue.admit(late)
    assert ids(queue, {"1": 9}) == ["0", "1"]


def test_a_retracted_one_goes_first_and_what_is_removed_is_gone() -> None:
    queue = WaitingQueue("longest_prefix")
    waiting = [sequence(order) for order in range(3)]
    for each in waiting:
        queue.add(each)
    queue.put_back(sequence(7, retractions=1))
    queue.remove(waiting[1])
    assert ids(queue, {"2": 5}) == ["7", "2", "0"]
    for each in [*queue]:
        queue.remove(each)
    assert (len(queue), ids(queue)) == (0, [])
