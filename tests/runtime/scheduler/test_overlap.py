"""Steps planned while others run: the same answers, and no page is let go of while a step in flight names it."""

from __future__ import annotations

import pytest
from engine_harness import Workload, generate, run_workload, workloads
from hash_harness import SIZE, alone
from hypothesis import given, settings
from hypothesis import strategies as st
from late_harness import LateHarness
from test_line_faults import check

from palmette.radix_cache.invariants import check_invariants
from palmette.runtime.config import Policy
from palmette.runtime.messages.requests import Abort, Asked, FlushCache, Score
from palmette.runtime.messages.tokens import pack


def test_a_step_is_in_flight_between_two_calls_and_the_next_is_planned_meanwhile() -> None:
    harness = LateHarness()
    request = generate("a", [1, 2, 3], max_tokens=9, ignore_eos=True)
    harness.core.submit(request)
    harness.step()
    assert harness.core.has_work
    assert harness.worker.steps == [], "nothing has been waited for"
    harness.step()
    assert harness.tokens("a") == alone(request)[0][:1]
    harness.run()
    assert harness.answer("a") == alone(request)
    assert len(harness.worker.steps) == 9, "an output whose last token is known has no row too many"
    assert harness.ahead == 8


def test_a_stop_is_found_one_row_too_late_and_nothing_of_it_stays() -> None:
    harness = LateHarness(pages=12)
    others = [generate(f"r{i}", [5 + i, 2, 3], max_tokens=20, temperature=1.0, seed=i) for i in range(6)]
    stops = [
        generate(f"s{i}", [5 + i, 2], max_tokens=20, temperature=1.0, seed=i, stop=("b", "d", "k")) for i in range(6)
    ]
    harness.run(*others, *stops)
    for request in (*others, *stops):
        assert harness.answer(request.id) == alone(request)


def test_an_abort_in_flight_keeps_its_pages_until_the_step_has_finished() -> None:
    good = generate("good", [1, 2, 3, 4, 5, 6], max_tokens=12)
    for steps in range(1, 9):
        harness = LateHarness(pages=24)
        harness.core.submit(generate("bad", [1, 2, 3, 4, 5, 9] * 5, max_tokens=50, ignore_eos=True))
        harness.core.submit(good)
        for _ in range(steps):
            harness.step()
        free = harness.cache.free_count
        harness.core.submit(Abort("bad"))
        assert harness.cache.free_count == free
        harness.run(FlushCache("flush"))
        assert harness.answer("bad")[2] == "abort"
        assert harness.answer("good") == alone(good)


def test_a_step_that_breaks_fails_its_requests_and_the_one_planned_behind_it_goes_on() -> None:
    requests = [generate(f"r{i}", [1 + i] * 5, max_tokens=6, ignore_eos=True) for i in range(5)]
    failures = set()
    for step in range(12):
        harness = LateHarness(max_running=2)
        harness.worker.fail_at = {step}
        harness.run(*requests)
        failed = {request.id for request in requests if harness.answer(request.id) == "InternalError"}
        failures.add(len(failed))
        assert failed
        for request in requests:
            assert request.id in failed or harness.answer(request.id) == alone(request), (step, request.id)
    assert failures <= {1, 2}


def test_an_abort_of_what_a_broken_step_was_to_copy_leaves_no_trace() -> None:
    harness = LateHarness(page_size=4)
    harness.run(generate("warm", [1, 2, 3, 4, 5, 6, 7], max_tokens=1))
    harness.worker.fail_at = {len(harness.worker.steps)}
    harness.core.submit(generate("bad", [1, 2, 3, 4, 5, 6, 9, 9], max_tokens=4))
    harness.step()
    harness.core.submit(Abort("bad"))
    harness.run()
    again = generate("again", [1, 2, 3, 4, 5, 6, 9, 9], max_tokens=4)
    harness.run(again)
    assert harness.answer("again") == alone(again)


def test_retraction_waits_for_the_step_in_flight() -> None:
    harness = LateHarness(pages=12, page_size=4)
    requests = [generate(f"r{i}", [1 + i, 2, 3], max_tokens=20, ignore_eos=True) for i in range(6)]
    harness.run(*requests)
    assert harness.core.counters().retractions > 0
    for request in requests:
        assert harness.answer(request.id) == alone(request)


@settings(max_examples=150)
@given(
    workloads(SIZE, [(), ("bc",), ("d",)], [1, 4, 16]),
    st.lists(st.sampled_from([False] * 9 + [True]), min_size=9, max_size=9),
    st.sets(st.integers(0, 40), max_size=2),
)
def test_any_program_gives_what_it_gives_without_overlap(
    workload: Workload, aborts: list[bool], broken: set[int]
) -> None:
    options, requests, _ = workload
    harness = LateHarness(**options)
    harness.worker.fail_at = broken
    aborted = run_workload(harness, workload, aborts[: len(requests)])
    failed = 0
    for request in requests:
        assert isinstance(request, Asked)
        if request.id in aborted:
            continue
        answer = harness.answer(request.id)
        if answer == "InternalError":
            failed += 1
        else:
            assert answer == alone(request), request
    assert failed <= 2 * harness.config.max_running * len(broken)
    assert check_invariants(harness.cache, []) == []


def test_scores_and_hints_of_a_full_engine_are_those_of_one_without_overlap() -> None:
    harness = LateHarness(pages=30, step_tokens=7)
    scores = [
        Score(id=f"s{i}", prefix=pack([1, 2, 3, 4, 5 + i]), continuations=(pack([6, 7]), pack([8]), pack([6, 9, 10])))
        for i in range(4)
    ]
    echoes = [generate(f"e{i}", [1, 2, 3, 4, 5 + i, 6], max_tokens=2, prompt_logprobs_from=1) for i in range(4)]
    harness.run(*scores, *echoes)
    for request in (*scores, *echoes):
        assert harness.answer(request.id) == alone(request)


@pytest.mark.parametrize("policy", ["longest_prefix", "priority", "fair_share"])
def test_most_steps_are_planned_ahead(policy: str) -> None:
    harness = LateHarness(pages=200, policy=policy, step_tokens=64)
    requests = [generate(f"r{i}", [1 + i, 2, 3], max_tokens=10 + i, ignore_eos=True) for i in range(8)]
    harness.run(*requests)
    assert harness.ahead >= len(harness.worker.steps) - 3
    for request in requests:
        assert harness.answer(request.id) == alone(request)


@pytest.mark.parametrize("policy", ["longest_prefix", "priority"])
def test_a_fault_at_a_sample_of_lines_fails_the_requests_of_that_step_only(policy: Policy) -> None:
    check(policy, every=8, make_harness=LateHarness)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["longest_prefix", "priority", "fair_share"])
def test_a_fault_at_any_line_fails_the_requests_of_that_step_only(policy: Policy) -> None:
    check(policy, every=1, make_harness=LateHarness)
