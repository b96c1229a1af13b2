"""When another program may begin: room for the next turns of those under way, and an end to waiting for it."""

from __future__ import annotations

import pytest
from engine_harness import generate
from hash_harness import HashHarness, alone

from palmette.runtime.messages.replies import Generated
from palmette.runtime.messages.requests import Generate
from palmette.runtime.scheduler.starts import POOLS, TURNS, Starts


def test_where_nothing_goes_on_nothing_is_held_back() -> None:
    starts = Starts(1000)
    for _ in range(10):
        starts.admitted(0, 100, overdue_begins=False)
    assert starts.reserve(50) == 0


def test_it_leaves_room_for_the_mean_turn_of_each_that_runs_and_of_itself() -> None:
    starts = Starts(1000)
    for turn in (0, 100, 0, 100):
        starts.admitted(turn, 100, overdue_begins=False)
    assert starts.reserve(3) == pytest.approx(TURNS * 50 * 4)


def test_patience_ends_after_so_much_prefill_and_is_back_when_an_overdue_one_began() -> None:
    starts = Starts(100)
    for _ in range(POOLS):
        assert not starts.impatient
        starts.admitted(0, 100, overdue_begins=False)
    assert starts.impatient
    starts.admitted(0, 100, overdue_begins=True)
    assert not starts.impatient


class Chat:
    """One program: each call is the last one's prompt and output, and two tokens more."""

    def __init__(self, harness: HashHarness, name: str, first: list[int]) -> None:
        self._harness, self._name, self._prompt = harness, name, first
        self.turns: list[Generate] = []

    def say(self, outputs: int) -> str:
        if self.turns:
            self._prompt = [*self._prompt, *self._harness.tokens(self.turns[-1].id), 7, 8]
        self.turns.append(generate(f"{self._name}{len(self.turns)}", self._prompt, max_tokens=outputs, ignore_eos=True))
        self._harness.core.submit(self.turns[-1])
        return self.turns[-1].id


def under_way(monkeypatch: pytest.MonkeyPatch, turns: float) -> tuple[HashHarness, Chat]:
    monkeypatch.setattr("palmette.runtime.scheduler.starts.TURNS", turns)
    harness = HashHarness(pages=24, page_size=4, max_running=4, policy="longest_prefix")
    chat = Chat(harness, "chat", [1, 2, 3, 4, 5])
    for _ in range(4):
        chat.say(6)
        harness.run()
    return harness, chat


@pytest.mark.parametrize("turns", [0.0, 4.0])
def test_one_that_begins_waits_until_the_next_turns_of_those_that_run_have_room(
    turns: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, chat = under_way(monkeypatch, turns)
    last = chat.say(6)
    harness.step()
    cold = generate("cold", [9] * 20, max_tokens=6, ignore_eos=True)
    harness.core.submit(cold)
    for _ in range(3):
        harness.step()
    assert harness.core.counters().running == (1 if turns else 2)
    harness.run()
    assert harness.answer("cold") == alone(cold)
    assert harness.answer(last) == alone(chat.turns[-1])


@pytest.mark.parametrize("impatient", [False, True])
def test_an_overdue_one_begins_whatever_the_room_when_patience_has_ended(
    impatient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, chat = under_way(monkeypatch, 4.0)
    chat.say(6)
    harness.step()
    monkeypatch.setattr(Starts, "impatient", property(lambda self: impatient))
    monkeypatch.setattr(harness.core._queue, "is_overdue", lambda sequence: True)
    harness.core.submit(generate("cold", [9] * 20, max_tokens=6, ignore_eos=True))
    harness.step()
    assert harness.core.counters().running == (2 if impatient else 1)
    harness.run()


def test_a_call_that_goes_on_is_not_held_up_by_one_that_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, chat = under_way(monkeypatch, 4.0)
    other = Chat(harness, "other", [11, 12, 13])
    other.say(4)
    harness.run()
    chat.say(6)
    harness.step()
    harness.core.submit(generate("cold", [9] * 20, max_tokens=6, ignore_eos=True))
    harness.step()
    other.say(4)
    harness.step()
    counters = harness.core.counters()
    assert (counters.running, counters.waiting) == (2, 1)
    harness.run()


def test_a_call_of_a_program_that_was_let_in_begins_nothing_and_goes_before_those_that_do() -> None:
    harness = HashHarness(pages=24, page_size=4, max_running=1, policy="longest_prefix")
    first = generate("first", [5] * 8, max_tokens=3, ignore_eos=True)
    harness.core.submit(first)
    harness.step()
    harness.core.submit(generate("plain", [6] * 8, max_tokens=2, ignore_eos=True))
    harness.core.submit(generate("program", [7] * 8, max_tokens=2, ignore_eos=True, under_way=True))
    ended: list[str] = []
    while len(ended) < 3:
        harness.step()
        ended += [name for name in ("first", "plain", "program") if name not in ended and _over(harness, name)]
    assert ended == ["first", "program", "plain"]


def test_plain_requests_are_served_while_programs_never_end() -> None:
    """Calls of programs under way go first, but what waits behind them becomes overdue, and begins."""
    harness = HashHarness(pages=24, page_size=4, max_running=1, policy="longest_prefix", aging_alpha=0.0, aging_beta=40)
    harness.core.submit(generate("call0", [1] * 12, max_tokens=2, ignore_eos=True, under_way=True))
    harness.step()
    harness.core.submit(generate("plain", [6] * 8, max_tokens=2, ignore_eos=True))
    for number in range(1, 60):
        prompt = [number % 50 + 1] * 12
        harness.core.submit(generate(f"call{number}", prompt, max_tokens=2, ignore_eos=True, under_way=True))
        for _ in range(2):
            harness.step()
        if _over(harness, "plain"):
            break
    assert _over(harness, "plain"), "it waited for ever"


def _over(harness: HashHarness, name: str) -> bool:
    return any(isinstance(reply, Generated) and reply.finish is not None for reply in harness.replies[name])
