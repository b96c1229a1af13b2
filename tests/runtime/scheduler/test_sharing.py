"""Waiting for a prefix that another computes: for it, no longer, and not for ever."""

from __future__ import annotations

import pytest
from engine_harness import generate
from hash_harness import HashHarness, alone
from waiting import generating, sequence

from palmette.runtime.messages.requests import Abort
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.sharing import PrefixSharing

STEM = [1 + i % 20 for i in range(40)]


def prefilling(order: int, tokens: list[int], computed: int = 0, slot: int | None = 0) -> Sequence:
    one = sequence(order, tokens=tokens)
    one.slot, one.computed = slot, computed
    return generating(one, 5)


def test_it_waits_until_the_shared_pages_are_computed_and_looks_no_more_meanwhile() -> None:
    sharing = PrefixSharing(4)
    other = prefilling(0, STEM)
    candidate = sequence(1, tokens=[*STEM[:10], 21, 22])
    looked: list[Sequence] = []

    def peek(one: Sequence) -> int:
        looked.append(one)
        return other.computed // 4 * 4

    for computed in range(8):
        other.computed = computed
        assert sharing.awaits(candidate, [other], peek)
    other.computed = 8  # two pages of the ten tokens
    assert not sharing.awaits(candidate, [other], peek)
    assert len(looked) == 2


@pytest.mark.parametrize(
    "tokens",
    [[9, *STEM[1:10]], STEM[:4], [*STEM[:2], 9, 9, 9]],
    ids=["nothing", "one page at most", "less than a page"],
)
def test_it_waits_for_whole_new_pages_only(tokens: list[int]) -> None:
    assert not PrefixSharing(4).awaits(sequence(1, tokens=tokens), [prefilling(0, STEM)], lambda _: 0)


def test_it_does_not_wait_for_what_the_tree_holds() -> None:
    assert not PrefixSharing(4).awaits(sequence(1, tokens=STEM[:10]), [prefilling(0, STEM)], lambda _: 8)


@pytest.mark.parametrize("ending", ["abort", "fault"])
def test_when_the_computing_one_ends_another_takes_over(ending: str) -> None:
    harness = HashHarness(pages=200, step_tokens=8)
    requests = [generate(f"r{i}", [*STEM, 21, 1 + i], max_tokens=2) for i in range(5)]
    for request in requests:
        harness.core.submit(request)
    harness.step()
    harness.step()
    assert harness.core.counters().running == 1
    if ending == "abort":
        harness.core.submit(Abort("r0"))
    else:
        harness.worker.fail_at = {2}
        harness.step()
    harness.step()
    assert harness.core.counters().running == 1, "one of the others computes the rest, and they wait for it"
    harness.run()
    for request in requests[1:]:
        assert harness.answer(request.id) == alone(request)
    assert sum(len(plan.tokens) for plan in harness.worker.steps) <= 40 + 5 * 8 + 16


@pytest.mark.parametrize("overdue", [False, True])
def test_an_overdue_one_waits_for_nobody(overdue: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = HashHarness(pages=200, step_tokens=64)
    monkeypatch.setattr(harness.core._queue, "is_overdue", lambda sequence: overdue)
    requests = [generate(f"r{i}", [*STEM[:20], 21, 1 + i], max_tokens=2) for i in range(2)]
    for request in requests:
        harness.core.submit(request)
    harness.step()
    assert harness.core.counters().running == (2 if overdue else 1)
    harness.run()
    assert [harness.answer(request.id) for request in requests] == [alone(request) for request in requests]
