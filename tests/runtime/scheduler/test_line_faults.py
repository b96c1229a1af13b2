"""A fault at any line of a step: its requests fail, the others never know, invariants hold.

Every line of scheduler and tree that a scenario (prefill, decode, sharing, eviction, retraction, preemption, scores,
embeddings) executes inside a step raises once, in a run of its own. `make test` takes a sample of the lines, `make
test-slow` all.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from engine_harness import generate
from hash_harness import HashHarness, alone

from palmette.runtime.messages.replies import Failed
from palmette.runtime.messages.requests import Embed, Generate, Score
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler import core as core_module
from palmette.runtime.scheduler.audit import inspect

ROOT = Path(core_module.__file__).parents[2]
ROOMS = (str(ROOT / "runtime" / "scheduler"), str(ROOT / "radix_cache"))
STEM = [1, 2, 3, 4, 5, 6, 7, 8, 9]
MAX_RUNNING = 3

# Lines of a step that can't be survived, by what they are part of, each with its reason.
OUTSIDE = dict.fromkeys(
    (("core.py", "step"), ("core.py", "_emit"), *(("overlap.py", f) for f in ("step", "_dispatch", "_draw", "_land"))),
    "before and behind the containment itself; a fault there ends the engine, and its front restarts it",
)

Line = tuple[str, int]
MakeHarness = Callable[..., HashHarness]


def arrivals(policy: str) -> dict[int, list[Generate | Score | Embed]]:
    """By step: shared prefixes that end inside pages, retraction and eviction in a pool of 8 pages, scores."""
    return {
        0: [
            generate("long", [*STEM, 10], max_tokens=17, ignore_eos=True, tenant="a"),
            generate("other", [9, 8, 7], max_tokens=18, ignore_eos=True, tenant="b", ttft_target=1e-9),
            Score(id="score", prefix=pack(STEM[:7]), continuations=(pack([1, 2, 4]), pack([3, 5]))),
        ],
        2: [generate("shared", [*STEM[:6], 11, 3], max_tokens=3, prompt_logprobs_from=2, logprobs=True)],
        4: [
            generate("twin", [*STEM, 10], max_tokens=2, frequency_penalty=0.5, logit_bias={3: -1.0}, deadline=50.0),
            generate("urgent", [12, 13, 14, 15, 16], max_tokens=3, priority=int(policy == "priority"), min_tokens=2),
        ],
        3: [
            Embed(id="mean", inputs=(pack(STEM), pack([2, 2, 3]))),
            Embed(id="last", inputs=(pack([*STEM, 10]),), pooling="last"),
        ],
        5: [generate("prompt", STEM, max_tokens=0), generate("stops", [5, 6, 7], max_tokens=9, stop=("b", "cd"))],
    }  # fmt: skip


class Never:
    """A step-time model that says nothing fits: chunks are as small as they may be."""

    def seconds(self, load: Any) -> float:
        return 1e-3

    def observe(self, load: Any, seconds: float) -> None:
        """Nothing is learned."""

    def tokens_within(self, seconds: float, base: Any, context: int) -> int:
        return 0


class Fault(Exception):
    pass


@dataclass
class Run:
    """One run of the scenario. `first`: the step in which each line was executed first."""

    policy: str
    harness: HashHarness
    first: dict[Line, int]
    step: int = 0
    concerned: frozenset[str] = frozenset()
    raised: str | None = None
    left_the_step: bool = False

    @classmethod
    def of(cls, policy: str, make_harness: MakeHarness) -> Run:
        options = {"pages": 8, "page_size": 4, "max_running": MAX_RUNNING, "step_tokens": 6, "aging_beta": 2}
        harness = make_harness(policy=policy, check_invariants=False, step_time=Never(), **options)
        return cls(policy, harness, {})

    def go(self, fault: Line | None = None, at_step: int = 0) -> None:
        todo = arrivals(self.policy)
        while todo or self.harness.core.has_work:
            for request in todo.pop(self.step, ()):
                self.harness.core.submit(request)
            if fault is None:
                self._watch()
            elif self.step == at_step:
                self._strike(fault)
            else:
                self.harness.step()
            findings = inspect(self.harness.cache, self.harness.core._running)
            assert not findings, (fault, self.raised, self.step, findings)
            self.step += 1
            assert self.step < 300, (fault, self.raised, "no progress")

    def _watch(self) -> None:
        def local(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self.first.setdefault((frame.f_code.co_filename, frame.f_lineno), self.step)
            return local

        self._traced(lambda frame, event, argument: local if _ours(frame) else None)

    def _strike(self, line: Line) -> None:
        core = self.harness.core
        before = {sequence.request_id for sequence in core._running}
        seen: set[str] = set()
        contain = core._contain

        def told(batch: Any, fault: Exception) -> None:
            touched = [row.sequence for row in batch.rows] + ([batch.subject] if batch.subject is not None else [])
            seen.update(sequence.request_id for sequence in (*touched, *core._running))
            contain(batch, fault)

        core._contain = told  # type: ignore[method-assign]

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line" and frame.f_lineno == line[1]:
                self.raised = frame.f_code.co_name
                raise Fault(f"{Path(line[0]).name}:{line[1]}")
            return local

        self._traced(lambda frame, event, argument: local if frame.f_code.co_filename == line[0] else None)
        core._contain = contain  # type: ignore[method-assign]
        self.concerned = frozenset(before | seen)

    def _traced(self, trace: Any) -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            self.harness.step()
        finally:
            sys.settrace(before)


def _ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename.replace("/.src/palmette/", "/")
    return name.startswith(ROOMS) or frame.f_code.co_filename.startswith(ROOMS)


def lines(policy: str, make_harness: MakeHarness) -> dict[Line, int]:
    run = Run.of(policy, make_harness)
    run.go()
    assert run.harness.core.counters().retractions > 0
    assert run.harness.core.counters().evicted_pages > 0
    return run.first


def strike(policy: str, line: Line, step: int, expected: dict[str, Any], make_harness: MakeHarness) -> Run:
    run = Run.of(policy, make_harness)
    try:
        run.go(line, step)
    except Fault:
        run.left_the_step = True
        return run
    where = f"{Path(line[0]).name}:{line[1]} in {run.raised}, {policy}"
    finals = {name: [r for r in replies if getattr(r, "finish", True)] for name, replies in run.harness.replies.items()}
    assert {name: len(each) for name, each in finals.items()} == dict.fromkeys(expected, 1), where
    failed = {name for name, [reply] in finals.items() if isinstance(reply, Failed)}
    errors = {name: run.harness.replies[name][-1].error for name in failed}  # type: ignore[union-attr]
    # Design rule 2: damaged pages are never used again, so what needs the whole pool may fit no more.
    smaller = {name for name, error in errors.items() if error.kind == "NeverFits"}
    assert not smaller or run.harness.cache.quarantined_pages, where
    assert failed - smaller <= run.concerned, (where, errors, run.concerned)
    for name in expected.keys() - failed:
        assert run.harness.answer(name) == expected[name], (where, name)
    return run


def check(policy: str, every: int, make_harness: MakeHarness = HashHarness) -> None:
    logging.disable(logging.CRITICAL)
    try:
        expected = {request.id: alone(request) for group in arrivals(policy).values() for request in group}
        chosen = sorted(lines(policy, make_harness).items())[::every]
        visited = 0
        for line, step in chosen:
            run = strike(policy, line, step, expected, make_harness)
            visited += run.raised is not None
            if run.left_the_step:
                where = (Path(line[0]).name, run.raised)
                assert where in OUTSIDE, f"{where} at line {line[1]} left the step"
        assert len(chosen) > 950 / every, "the scenario reaches what a step can do"
        assert visited > 0.95 * len(chosen)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("policy", ["longest_prefix", "priority"])
def test_a_fault_at_a_sample_of_lines_fails_the_requests_of_that_step_only(policy: str) -> None:
    check(policy, every=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    ["longest_prefix", "first_come", "depth_first_weight", "priority", "deadline", "shortest_remaining", "fair_share"],
)
def test_a_fault_at_any_line_fails_the_requests_of_that_step_only(policy: str) -> None:
    check(policy, every=1)
