"""Samples planned beside the model: the same answers, and no step that goes on while its plan is still being made."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from test_constrained import COMPILER, PATTERNS, constrained, harness, text

from palmette.runtime.messages.replies import Failed
from palmette.runtime.scheduler import sampling
from palmette.runtime.scheduler.batch import StepBatch


def answers(count: int) -> list[Any]:
    run = harness(COMPILER, pages=200)
    run.run(*(constrained(f"r{i}", PATTERNS[i % len(PATTERNS)], seed=i, temperature=1.5) for i in range(count)))
    return [run.answer(f"r{i}") for i in range(count)]


def test_many_constrained_outputs_are_planned_in_a_thread_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    makers: set[str] = set()
    plan = StepBatch.sample_plan

    def watched(batch: StepBatch) -> Any:
        makers.add(threading.current_thread().name.rpartition("_")[0])
        return plan(batch)

    monkeypatch.setattr(StepBatch, "sample_plan", watched)
    beside = answers(6)
    assert "palmette-masks" in makers
    makers.clear()
    monkeypatch.setattr(sampling, "MANY", 1_000)
    assert answers(6) == beside
    assert "palmette-masks" not in makers


def test_a_fault_of_either_fails_the_step_alone_and_waits_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward breaks while the plan is being made, then the plan itself."""
    busy: list[bool] = []
    plan = StepBatch.sample_plan

    def slow(batch: StepBatch) -> Any:
        busy.append(True)
        time.sleep(0.05)
        busy.pop()
        return plan(batch)

    for broken in ("forward", "plan"):
        run = harness(COMPILER, pages=200)

        def breaks(*_: Any) -> Any:
            raise RuntimeError("it broke")

        for index in range(5):
            run.core.submit(constrained(f"r{index}", "[a-j]{80}", "off", seed=index, max_tokens=100))
        for _ in range(2_000):  # grammars are compiled elsewhere
            if run.core.counters().running == 5:
                break
            run.core.step()
            time.sleep(0.001)
        with monkeypatch.context() as patch:
            patch.setattr(StepBatch, "sample_plan", slow if broken == "forward" else breaks)
            if broken == "forward":
                patch.setattr(run.worker, "forward", breaks)
            failed = [reply for reply in run.core.step() if isinstance(reply, Failed)]
        assert not busy, "the step was over before its plan was made"
        assert {reply.id for reply in failed} == {f"r{index}" for index in range(5)}
        run.run(constrained("next", PATTERNS[0]))
        assert text(run, "next").startswith("2026-0")
