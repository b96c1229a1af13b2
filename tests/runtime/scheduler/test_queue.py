"""Who is next: priority, then the retracted and those that waited too long, then the policy's order."""

from __future__ import annotations

from waiting import Waiting, sequence

from palmette.runtime.config import Policy


def test_a_higher_priority_goes_first_however_many_wait() -> None:
    policies: list[Policy] = ["longest_prefix", "first_come", "depth_first_weight", "shortest_remaining", "fair_share"]
    for policy in policies:
        waiting = Waiting(policy)
        waiting.add(*[sequence(order) for order in range(300)], sequence(1000, priority=1))
        assert waiting.ids()[:2] == ["1000", "0"]
        assert len(waiting.queue) == 301


def test_one_that_was_passed_over_too_much_goes_first_whatever_its_prefix() -> None:
    waiting = Waiting("longest_prefix", alpha=2, beta=10)
    first, second = sequence(0, length=5), sequence(1, length=5)
    waiting.add(first, second)  # 0 and 5 tokens queued before them: 10 and 20 may go ahead
    given = 0
    for order in range(2, 30):
        late = sequence(order, moment=1)
        waiting.matched[late] = 4
        waiting.add(late)
        assert waiting.ids()[0] == ("0" if given > 10 else str(order))
        assert waiting.queue.is_overdue(first) == (given > 10)
        assert waiting.queue.is_overdue(second) == (given > 20)
        waiting.queue.admit(late, 3)
        given += 3
    assert waiting.ids() == ["0", "1"]


def test_those_that_came_together_do_not_age_one_another() -> None:
    waiting = Waiting("longest_prefix", alpha=0, beta=1)
    both = [sequence(order) for order in range(2)]
    waiting.add(*both)
    waiting.queue.admit(both[1], 100)
    assert not waiting.queue.is_overdue(both[0])


def test_a_lower_priority_never_ages_a_higher_one_nor_the_other_way_round() -> None:
    waiting = Waiting("longest_prefix", alpha=0, beta=1)
    low, high = sequence(0), sequence(1, priority=1, moment=1)
    waiting.add(low, high)
    waiting.queue.admit(high, 100)
    assert not waiting.queue.is_overdue(low)


def test_a_retracted_one_goes_first_and_what_is_removed_is_gone() -> None:
    waiting = Waiting("longest_prefix")
    three = [sequence(order) for order in range(3)]
    waiting.matched[three[2]] = 5
    waiting.add(*three, sequence(7, retractions=1))
    waiting.queue.remove(three[1])
    assert waiting.ids() == ["7", "2", "0"]
    for each in [*waiting.queue]:
        waiting.queue.remove(each)
    assert (len(waiting.queue), waiting.ids()) == (0, [])


def test_a_rebuilt_queue_holds_who_waits() -> None:
    waiting = Waiting("depth_first_weight")
    three = [sequence(order) for order in range(3)]
    waiting.add(*three)
    waiting.queue.rebuild(three[1:])
    assert waiting.ids() == ["1", "2"]
    waiting.queue.remove(three[1])
    assert waiting.ids() == ["2"]


def test_priorities_that_nobody_uses_any_more_are_forgotten() -> None:
    waiting = Waiting("first_come")
    for priority in range(500):
        one = sequence(priority, priority=priority)
        waiting.add(one)
        waiting.queue.remove(one)
    assert len(waiting.queue._levels) < 100


def test_programs_under_way_come_before_those_that_begin_one() -> None:
    waiting = Waiting("longest_prefix")
    cold, warm, going = (sequence(order) for order in range(3))
    waiting.matched.update({warm: 5, going: 2})
    waiting.going_on.add(going)
    waiting.add(cold, warm, going)
    queue = waiting.queue
    assert waiting.ids() == ["2", "1", "0"]
    assert [queue.begins(each) for each in (cold, warm, going)] == [True, True, False]
    assert [queue.turn(each) for each in (cold, warm, going)] == [0, 0, 4]
    assert not queue.begins(sequence(3, retractions=1))
    queue.remove(going)
    assert waiting.ids() == ["1", "0"]


def test_an_overdue_one_that_begins_a_program_comes_first_only_when_it_is_forced() -> None:
    waiting = Waiting("longest_prefix", alpha=0, beta=10)
    begins, goes_on = sequence(0), sequence(1)
    late, later = sequence(2, moment=1), sequence(3, moment=2)
    waiting.going_on.update({goes_on, later})
    waiting.add(begins, goes_on, late)
    waiting.queue.admit(late, 11)
    waiting.add(later, sequence(4, moment=2))
    assert [waiting.queue.is_overdue(each) for each in (begins, goes_on, later)] == [True, True, False]
    assert waiting.ids() == ["1", "3", "0", "4"]
    assert [each.request_id for each in waiting.queue.candidates(overdue_first=True)] == ["1", "0", "3", "4"]


def test_other_policies_know_no_programs() -> None:
    policies: list[Policy] = ["first_come", "priority", "shortest_remaining", "deadline", "fair_share"]
    for policy in policies:
        waiting = Waiting(policy)
        first, going = sequence(0), sequence(1)
        waiting.going_on.add(going)
        waiting.add(first, going)
        assert waiting.ids() == ["0", "1"]
        assert not waiting.queue.begins(first)
