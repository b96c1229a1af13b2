"""What counts as in time."""

from __future__ import annotations

import math

import pytest
from engine_harness import generate
from hash_harness import HashHarness
from hash_worker import Handle

from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.requests import Generate, Score
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.plan import StepPlan
from palmette.runtime.scheduler.targets import NO_TARGETS, Targets


def test_each_target_is_held_against_its_figure() -> None:
    usage = Usage(completion_tokens=11, first_token_seconds=2.0, total_seconds=7.0)
    assert Targets(ttft=2.0, tpot=0.5, deadline=7.0).met(usage)
    for missed in (Targets(ttft=1.9), Targets(tpot=0.49), Targets(deadline=6.9)):
        assert not missed.met(usage)
    assert Targets(tpot=0.1).met(Usage(completion_tokens=1, total_seconds=9.0)), "there is no gap to be late in"
    assert not NO_TARGETS


def test_a_deadline_leaves_time_for_the_outputs_to_come() -> None:
    assert Targets(deadline=10, tpot=0.5).start_within(11) == 5
    assert Targets(deadline=10, tpot=0.5, ttft=3).start_within(11) == 3
    assert NO_TARGETS.start_within(5) == math.inf


def test_goodput_is_counted() -> None:
    now = [0.0]
    harness = HashHarness(clock=lambda: now[0], max_running=1, ttft_target_ms=1500.0)
    forward = harness.worker.forward

    def a_second_later(plan: StepPlan) -> Handle:
        now[0] += 1
        return forward(plan)

    harness.worker.forward = a_second_later  # type: ignore[method-assign]
    params = SamplingParams(max_tokens=2, ignore_eos=True, seed=1)
    harness.run(
        generate("first", [1, 2], max_tokens=2, ignore_eos=True),  # the engine's target, met
        Generate(id="late", prompt=pack([3, 4]), params=params, ttft_target=2.5),
        Generate(id="slow", prompt=pack([3, 4]), params=params, ttft_target=99, tpot_target=0.5),
        Score(id="score", prefix=pack([5]), continuations=(pack([6]),), deadline=99),
    )
    counters = harness.core.counters()
    assert (counters.finished, counters.targeted, counters.in_time) == (4, 4, 2)


@pytest.mark.parametrize("name", ["ttft_target", "tpot_target", "deadline"])
@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_target_must_be_a_time(name: str, seconds: float) -> None:
    harness = HashHarness()
    harness.run(Generate(id="a", prompt=pack([1]), params=SamplingParams(), **{name: seconds}))  # type: ignore[arg-type]
    assert f"{name}={seconds!r}" in harness.replies["a"][0].error.message  # type: ignore[union-attr]
