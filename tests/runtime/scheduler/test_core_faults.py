"""A fault at any call that a step makes: its requests fail, the others never know, and no page is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from engine_harness import generate
from hash_harness import HashHarness, alone

from palmette.radix_cache.cache import Lease
from palmette.runtime.messages.replies import Failed
from palmette.runtime.messages.requests import Abort, FlushCache, Generate, Score
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.health import SECONDS

STEM = [1, 2, 3, 4, 5, 6, 7, 8, 9]
MAX_RUNNING = 2
STEP_CALLS = ("forward", "sample", "match", "peek", "available", "allocate", "free", "insert", "finish")
LEASE_CALLS = ("drop_tail", "release")


def requests() -> list[Generate | Score]:
    """Shared prefixes that end inside pages, retraction in a pool of 7 pages, a score; "other" is aborted."""
    return [
        generate("long", [*STEM, 10], max_tokens=17, ignore_eos=True),
        generate("other", [9, 8, 7], max_tokens=24, ignore_eos=True),
        Score(id="score", prefix=pack(STEM[:7]), continuations=(pack([1, 2]), pack([3]), pack([4, 5]))),
        generate("shared", [*STEM[:6], 11], max_tokens=3, prompt_logprobs_from=2),
        generate("prompt", STEM, max_tokens=0),
    ]


class Fault:
    """The n-th call (from 0) of those that the step makes raises before it does anything."""

    def __init__(self, at: int) -> None:
        self.calls = 0
        self.at = at
        self.name: str | None = None  # of the call that raised
        self._depth = 0

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **options: Any) -> Any:
            outermost = self._depth == 0
            if outermost:
                self.calls += 1
                if self.calls == self.at + 1:
                    self.name = name
                    raise RuntimeError(f"{name} broke")
            self._depth += 1
            try:
                return call(*args, **options)
            finally:
                self._depth -= 1

        return guarded


def run_with_fault(at: int, monkeypatch: pytest.MonkeyPatch) -> tuple[HashHarness, Fault]:
    harness = HashHarness(pages=7, page_size=4, max_running=MAX_RUNNING, step_tokens=6, policy="first_come")
    fault = Fault(at)
    with monkeypatch.context() as patch:
        for part in (harness.worker, harness.cache):
            for name in STEP_CALLS:
                if hasattr(part, name):
                    patch.setattr(part, name, fault.wrap(name, getattr(part, name)))
        for name in LEASE_CALLS:
            patch.setattr(Lease, name, fault.wrap(name, getattr(Lease, name)))
        for request in requests():
            harness.core.submit(request)
        for _ in range(35):
            harness.step()
        harness.run(Abort("other"))
    return harness, fault


def test_a_fault_at_any_call_of_a_step_fails_its_requests_only(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {request.id: alone(request) for request in requests()}
    seen: set[str] = set()
    at = 0
    while True:
        harness, fault = run_with_fault(at, monkeypatch)
        if fault.name is None:
            break
        where = f"call {at}, {fault.name}"
        seen.add(fault.name)
        finals = {name: [r for r in replies if getattr(r, "finish", True)] for name, replies in harness.replies.items()}
        assert {name: len(each) for name, each in finals.items()} == dict.fromkeys(expected, 1), where
        failed = {name for name, [reply] in finals.items() if isinstance(reply, Failed)}
        assert len(failed) <= MAX_RUNNING + 1, (where, failed)
        for name in failed:
            error = harness.replies[name][-1].error  # type: ignore[union-attr]
            too_large_now = fault.name == "free" and error.kind == "NeverFits"
            assert f"RuntimeError: {fault.name} broke" in error.message or too_large_now, where
        for name in expected.keys() - failed - {"other"}:
            assert harness.answer(name) == expected[name], where
        assert fault.name == "free" or harness.cache.quarantined_pages == 0, where
        at += 1
    assert harness.core.counters().retractions > 0, "the workload reaches every path"
    assert seen == {*STEP_CALLS, *LEASE_CALLS}


def test_a_request_that_breaks_its_intake_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = HashHarness()
    monkeypatch.setattr(harness.cache, "clear", Fault(0).wrap("clear", harness.cache.clear))
    good = generate("good", [1, 2], max_tokens=3)
    harness.run(FlushCache("flush"), good)
    assert "RuntimeError: clear broke" in harness.replies["flush"][0].error.message  # type: ignore[union-attr]
    assert harness.answer("good") == alone(good)


def test_two_open_requests_of_one_id_end_with_one_answer() -> None:
    harness = HashHarness()
    good = generate("good", [1, 2], max_tokens=3)
    harness.core.submit(generate("twin", [1, 2, 3], max_tokens=50, ignore_eos=True))
    harness.step()
    harness.run(generate("twin", [4, 5], max_tokens=3), good)
    finals = [reply for reply in harness.replies["twin"] if isinstance(reply, Failed)]
    assert [reply.error.kind for reply in finals] == ["InvalidRequest"]
    assert harness.replies["twin"][-1] is finals[0]
    assert harness.answer("good") == alone(good)


def test_an_audit_takes_a_leaked_page_out_of_use_and_refuses_what_fits_no_more() -> None:
    harness = HashHarness(pages=4, page_size=4, check_invariants=False)
    waits = generate("waits", [1] * 10, max_tokens=6, ignore_eos=True)
    small = generate("small", [2] * 5, max_tokens=6, ignore_eos=True)
    harness.core.submit(waits)
    harness.core.submit(small)
    harness.cache.allocate(1)  # nobody's
    harness.core.audit()
    assert harness.core.counters().quarantined_pages == 1
    harness.run(generate("late", [1] * 10, max_tokens=6))
    assert (harness.answer("waits"), harness.answer("late")) == ("NeverFits", "NeverFits")
    assert harness.answer("small") == alone(small)


def test_upkeep_audits_after_steps_only_and_not_too_often() -> None:
    now = [1000.0]
    harness = HashHarness(check_invariants=False, clock=lambda: now[0])
    harness.cache.allocate(1)  # nobody's

    def quarantined() -> int:
        harness.core.upkeep()
        return harness.core.counters().quarantined_pages

    assert quarantined() == 0, "nothing was computed"
    harness.run_steps(generate("a", [1, 2], max_tokens=2))
    assert quarantined() == 1
    harness.cache.allocate(1)
    harness.run_steps(generate("b", [1, 2], max_tokens=2))
    assert quarantined() == 1, "the last audit was just now"
    now[0] += SECONDS
    assert quarantined() == 2


def test_an_audit_fails_who_holds_a_page_that_is_also_free() -> None:
    harness = HashHarness(pages=12, check_invariants=False)
    good = generate("good", [2] * 9, max_tokens=8, ignore_eos=True)
    harness.core.submit(generate("bad", [1] * 3, max_tokens=20, ignore_eos=True))
    harness.core.submit(good)
    harness.step()
    bad = next(sequence for sequence in harness.core._running if sequence.request_id == "bad")
    harness.cache.free(bad.pages[-1:])
    harness.core.audit()
    harness.run()
    assert harness.answer("bad") == "InternalError"
    assert harness.answer("good") == alone(good)
    assert harness.cache.quarantined_pages == 1


def test_an_audit_frees_a_lease_that_nobody_holds() -> None:
    harness = HashHarness(check_invariants=False)
    harness.run(generate("a", [1] * 9, max_tokens=1))
    harness.cache.match(pack([1] * 9), "")
    harness.core.audit()
    harness.run(FlushCache("flush"))
    assert (harness.cache.cached_pages, harness.cache.quarantined_pages) == (0, 0)
