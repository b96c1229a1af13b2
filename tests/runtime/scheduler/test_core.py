"""The engine's step on the hash worker: any mix of requests gives what each gives alone, without a cache."""

from __future__ import annotations

import msgspec
import pytest
from engine_harness import Workload, generate, run_workload, workloads
from hash_harness import SIZE, HashHarness, alone
from hash_worker import Handle
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.messages.hints import Hint
from palmette.runtime.messages.replies import (
    Flushed,
    Generated,
    TreeDump,
)
from palmette.runtime.messages.requests import Abort, Asked, DumpTree, FlushCache, Generate, Request, Score, Shutdown
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.plan import StepPlan


def test_one_request() -> None:
    harness = HashHarness()
    harness.run(generate("a", [1, 2, 3], max_tokens=5, ignore_eos=True))
    assert len(harness.tokens("a")) == 5
    last = harness.replies["a"][-1]
    assert isinstance(last, Generated)
    assert last.finish is not None
    assert last.finish.reason == "length"
    usage = last.finish.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (3, 5, 0)


def test_replies_as_rare_as_they_are_wanted() -> None:
    """The first token comes at once, the last with all that none has brought."""
    moments = iter(range(1000))
    harness = HashHarness(clock=lambda: float(next(moments)))
    often = msgspec.structs.replace(generate("often", [1, 2, 3], max_tokens=20, ignore_eos=True))
    harness.run(often)
    harness.run(msgspec.structs.replace(often, id="seldom", reply_seconds=1e9))
    harness.run(msgspec.structs.replace(often, id="now and then", reply_seconds=12.0))
    assert harness.tokens("often") == harness.tokens("seldom") == harness.tokens("now and then")
    sizes = [len(reply.tokens) // 4 for reply in harness.replies["seldom"] if isinstance(reply, Generated)]
    assert sizes == [1, 19]
    assert len(harness.replies["often"]) == 20
    assert 2 < len(harness.replies["now and then"]) < 20


def test_a_second_run_reuses_all_but_the_last_token() -> None:
    harness = HashHarness()
    prompt = list(range(1, 12))
    harness.run(generate("a", prompt, max_tokens=3, ignore_eos=True))
    harness.run(generate("b", prompt, max_tokens=3, ignore_eos=True))
    assert harness.answer("a") == harness.answer("b")
    usage = harness.replies["b"][-1].finish.usage  # type: ignore[union-attr]
    assert (usage.cached_tokens, usage.reusable_tokens, usage.computed_tokens) == (10, 10, 1)


def test_requests_with_one_prefix_compute_it_once() -> None:
    harness = HashHarness(pages=200)
    shared = [1 + i % 20 for i in range(40)]
    harness.run(*[generate(f"r{i}", [*shared, 21, i], max_tokens=2) for i in range(8)])
    computed = sum(len(plan.tokens) for plan in harness.worker.steps)
    assert computed <= 40 + 8 * (2 + 2) + 8


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_siblings_share_the_page_that_the_first_still_writes(page_size: int) -> None:
    harness = HashHarness(pages=320 // page_size, page_size=page_size, step_tokens=64)
    prompt = [1 + i % 20 for i in range(27)]
    requests = [generate(f"r{i}", prompt, max_tokens=6, temperature=1.0, seed=i) for i in range(4)]
    harness.run(*requests)
    for request in requests:
        assert harness.answer(request.id) == alone(request)
    cached = [harness.replies[request.id][-1].finish.usage.cached_tokens for request in requests]  # type: ignore[union-attr]
    assert cached == [0, 26, 26, 26]


def test_retraction_under_a_small_pool_keeps_every_token() -> None:
    harness = HashHarness(pages=12, page_size=4)
    requests = [generate(f"r{i}", [1 + i, 2, 3], max_tokens=20, ignore_eos=True) for i in range(6)]
    harness.run(*requests)
    assert harness.core.counters().retractions > 0
    for request in requests:
        assert harness.answer(request.id) == alone(request)


def test_score_gives_the_log_probabilities_of_prompt_tokens() -> None:
    harness = HashHarness()
    score = Score(id="s", prefix=pack([1, 2, 3, 4, 5]), continuations=(pack([6, 7]), pack([8]), pack([6, 9, 10])))
    harness.run(score)
    harness.run(generate("p", [1, 2, 3, 4, 5, 6, 9, 10], max_tokens=0, prompt_logprobs_from=5))
    finish = harness.replies["p"][-1].finish  # type: ignore[union-attr]
    assert tuple(entry.logprob for entry in finish.prompt_logprobs) == harness.answer("s")[2]
    assert harness.answer("s") == alone(score)


def test_what_can_never_fit_is_refused_with_the_arithmetic() -> None:
    harness = HashHarness(pages=8, page_size=4, context=64)
    harness.run(generate("long", [1] * 60, max_tokens=10), generate("big", [1] * 30, max_tokens=10),
                generate("ok", [1] * 8, max_tokens=4), generate("rest", [1] * 8, ignore_eos=True))  # fmt: skip
    assert [harness.answer(name) for name in ("long", "big")] == ["ContextLengthExceeded", "NeverFits"]
    assert "60 prompt tokens + max_tokens 10 = 70, but the context has 64" in harness.replies["long"][0].error.message  # type: ignore[union-attr]
    assert harness.answer("ok") == alone(generate("ok", [1] * 8, max_tokens=4))
    assert len(harness.tokens("rest")) == 24  # max_tokens omitted: what the pool can hold


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (Generate(id="x", prompt=b"", params=SamplingParams()), "InvalidRequest"),
        (Generate(id="x", prompt=b"abc", params=SamplingParams()), "InvalidRequest"),
        (generate("x", [SIZE]), "InvalidRequest"),
        (generate("x", [1], temperature=-1.0), "InvalidRequest"),
        (generate("x", [1], logit_bias={SIZE: 1.0}), "InvalidRequest"),
        (generate("x", [1], top_p=float("nan")), "InvalidRequest"),
        (Generate(id="x", prompt=pack([1]), params=SamplingParams(), first_output_index=2**63 - 1), "InvalidRequest"),
        (Generate(id="x", prompt=pack([1]), params=SamplingParams(), first_output_index=-1), "InvalidRequest"),
        (Score(id="x", prefix=pack([1]), continuations=()), "InvalidRequest"),
        (Score(id="x", prefix=pack([1]), continuations=(b"",)), "InvalidRequest"),
    ],
)
def test_a_bad_request_fails_alone(request_: Request, kind: str) -> None:
    harness = HashHarness()
    good = generate("good", [1, 2], max_tokens=3)
    harness.run(request_, good)
    assert harness.answer("x") == kind
    assert harness.answer("good") == alone(good)


def test_abort_at_any_time_frees_everything_and_disturbs_nobody() -> None:
    good = generate("good", [1, 2, 3, 4, 5, 6], max_tokens=12)
    for steps in range(8):
        harness = HashHarness()
        for request in (generate("bad", [1, 2, 3, 4, 5, 9] * 5, max_tokens=50, ignore_eos=True), good):
            harness.core.submit(request)
        for _ in range(steps):
            harness.step()
        harness.run(Abort("bad"), Abort("nobody"))
        assert harness.answer("bad")[2] == "abort"
        assert harness.answer("good") == alone(good)


def test_a_step_that_fails_fails_its_requests_only() -> None:
    harness = HashHarness(max_running=2)
    harness.worker.fail_at = {2}
    requests = [generate(f"r{i}", [1 + i] * 5, max_tokens=6, ignore_eos=True) for i in range(5)]
    harness.run(*requests)
    answers = [harness.answer(request.id) for request in requests]
    assert answers[:2] == ["InternalError"] * 2
    assert answers[2:] == [alone(request) for request in requests[2:]]


def test_logits_that_are_not_finite_fail_one_request() -> None:
    harness = HashHarness()
    harness.worker.poison = {9}
    good = generate("good", [1, 2, 3], max_tokens=4, logit_bias={9: -100.0})
    harness.run(generate("bad", [1, 2, 9], max_tokens=4), good)
    assert harness.answer("bad") == "InternalError"
    assert harness.answer("good") == alone(good)


def test_namespaces_share_nothing() -> None:
    harness = HashHarness()
    for name, namespace in (("a", ""), ("b", "other"), ("c", "other")):
        harness.run(generate(name, [1, 2, 3, 4, 5], max_tokens=1, namespace=namespace))
    cached = [harness.replies[name][-1].finish.usage.cached_tokens for name in "abc"]  # type: ignore[union-attr]
    assert cached == [0, 0, 4]


def test_flush_and_dump() -> None:
    harness = HashHarness()
    harness.run(generate("a", [1, 2, 3, 4, 5], max_tokens=1))
    harness.run(DumpTree("d"))
    dump = harness.replies["d"][0]
    assert isinstance(dump, TreeDump)
    assert sum(node.pages for node in dump.nodes) == 2
    harness.run(FlushCache("f"))
    assert harness.replies["f"] == [Flushed("f", 2)]
    assert harness.cache.cached_pages == 0


def test_first_come_is_served_in_order_and_longest_prefix_is_not_starved() -> None:
    def order(policy: str) -> list[str]:
        harness = HashHarness(pages=40, max_running=1, policy=policy, aging_alpha=1, aging_beta=30)
        harness.run(generate("warm", [1, 2, 3, 4, 5, 6, 7, 8], max_tokens=1))
        for request in (generate("first", [7] * 8, max_tokens=1), generate("cold", [9] * 4, max_tokens=1)):
            harness.core.submit(request)
        for i in range(90):  # of each two tokens are computed, of some one
            harness.core.submit(generate(f"w{i}", [1, 2, 3, 4, 5, 6, 7, 8, 1 + i % 20, 1 + i // 20], max_tokens=1))
            harness.step()
        harness.run()
        return [name for name in harness.replies if name != "warm"]

    assert order("first_come")[:2] == ["first", "cold"]
    late = order("longest_prefix")
    assert 15 < late.index("first") <= 20, "once more than 30 tokens went to later ones"
    assert late.index("first") + 4 <= late.index("cold") <= late.index("first") + 10, "and the 8 queued before it more"


def test_shutdown_without_draining_answers_everyone() -> None:
    harness = HashHarness()
    for i in range(12):
        harness.core.submit(generate(f"r{i}", [1, 2, 3], max_tokens=50, ignore_eos=True))
    harness.step()
    harness.run(Shutdown(drain=False))
    assert {harness.answer(f"r{i}")[2] for i in range(12)} == {"abort"}


@settings(max_examples=150)
@given(
    workloads(SIZE, [(), ("bc",), ("d",)], [1, 4, 16]),
    st.lists(st.sampled_from([False] * 9 + [True]), min_size=9, max_size=9),
)
def test_any_program_of_requests_equals_one_at_a_time_without_cache(workload: Workload, aborts: list[bool]) -> None:
    options, requests, _ = workload
    harness = HashHarness(**options)
    aborted = run_workload(harness, workload, aborts[: len(requests)])
    for request in requests:
        assert isinstance(request, Asked)
        if request.id not in aborted:
            assert harness.answer(request.id) == alone(request), request


def test_a_retracted_sequence_that_decodes_at_once_gives_its_tail_up() -> None:
    """All it had computed is found again, the end of it inside a page of its twin: with that page held by the tail
    the pool is one page short."""
    harness = HashHarness(pages=4, page_size=8, max_running=2, policy="first_come")
    twins = [
        generate(name, [1] * 5, max_tokens=tokens, temperature=0.0, ignore_eos=True)
        for name, tokens in (("short", 14), ("long", 27))
    ]
    harness.run(*twins)
    assert harness.core.counters().retractions > 0
    assert [harness.answer(request.id) for request in twins] == [alone(request) for request in twins]


def test_without_a_cache_siblings_neither_share_nor_wait() -> None:
    harness = HashHarness(prefix_cache=False, step_tokens=64)
    harness.run(*[generate(name, [1, 2, 3, 4, 5, 6], max_tokens=2 + 3 * index) for index, name in enumerate("abc")],
                generate("d", [1, 2, 3, 4, 5, 6], max_tokens=2))  # fmt: skip
    assert [harness.replies[name][-1].finish.usage.cached_tokens for name in "abcd"] == [0] * 4  # type: ignore[union-attr]
    assert len(harness.worker.steps[0].row_slots) == 4


def test_while_pages_are_missing_those_that_wait_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue is looked at when somebody came or went, not in every step."""
    harness = HashHarness(pages=12, page_size=4)
    peeks: list[str] = []
    peek = harness.cache.peek
    monkeypatch.setattr(harness.cache, "peek", lambda key, namespace: peeks.append(namespace) or peek(key, namespace))
    looked = []
    requests = [generate(f"r{i}", [1 + i % 20] * 16, max_tokens=10, ignore_eos=True) for i in range(30)]
    for request in requests:
        harness.core.submit(request)
    while harness.core.has_work:
        before, was = len(peeks), harness.core.counters()
        harness.step()
        now = harness.core.counters()
        if was.waiting == now.waiting and was.finished == now.finished and now.waiting:
            looked.append(len(peeks) - before)
    assert len(looked) > 50
    assert sum(count > 0 for count in looked) < len(looked) / 2
    harness.run(generate("late", [1] * 16, max_tokens=10))
    assert [harness.answer(request.id) for request in requests[:3]] == [alone(request) for request in requests[:3]]


def test_scores_that_are_not_finite_fail_their_request_only() -> None:
    harness = HashHarness(step_tokens=64)
    harness.worker.poison = {9}
    score = Score(id="bad", prefix=pack([1, 2, 3]), continuations=(pack([4, 5]), pack([9, 4, 5]), pack([6, 7, 8])))
    echo = generate("echo", [1, 9, 2, 3], max_tokens=0, prompt_logprobs_from=0)
    good = Score(id="good", prefix=pack([1, 2, 3]), continuations=(pack([4, 5]), pack([6, 7])))
    harness.run(score, echo, good)
    assert (harness.answer("bad"), harness.answer("echo")) == ("InternalError", "InternalError")
    assert harness.answer("good") == alone(good)


def test_counters_add_up_however_requests_end() -> None:
    harness = HashHarness(max_running=3)
    requests = [generate(f"r{i}", [1 + i, 2, 3], max_tokens=4, ignore_eos=True) for i in range(4)]
    scores = [Score(id=f"s{i}", prefix=pack([5, 6, 7 + i]), continuations=(pack([1]), pack([2]))) for i in range(2)]
    for request in (*requests, *scores, generate("refused", [SIZE]), generate("waits", [3] * 9, max_tokens=9)):
        harness.core.submit(request)
    for _ in range(2):
        harness.step()
    harness.run(Abort("r0"), Abort("s1"), Abort("waits"), Abort("nobody"))
    counters = harness.core.counters()
    assert (counters.finished, counters.aborted, counters.failed) == (4, 3, 1)
    ran = [request for request in (*requests, scores[0]) if request.id != "r0"]
    usages = [
        getattr(harness.replies[each.id][-1], "usage", None) or harness.replies[each.id][-1].finish.usage
        for each in ran
    ]  # type: ignore[union-attr]
    aborted = harness.replies["r0"][-1].finish.usage  # type: ignore[union-attr]
    assert counters.completion_tokens == sum(usage.completion_tokens for usage in (*usages, aborted)) > 12
    assert counters.prompt_tokens == sum(usage.prompt_tokens for usage in (*usages, aborted)), (
        "what never ran is no work"
    )


def test_the_engine_lives_in_the_time_of_its_clock() -> None:
    """A simulation's clock stands still but for what its worker adds: figures are exact."""
    now = [100.0]
    harness = HashHarness(clock=lambda: now[0], max_running=1)
    forward = harness.worker.forward

    def a_second_later(plan: StepPlan) -> Handle:
        now[0] += 1
        return forward(plan)

    harness.worker.forward = a_second_later  # type: ignore[method-assign]
    harness.run(*[generate(name, [index, 2, 3], max_tokens=3, ignore_eos=True) for index, name in enumerate("ab", 5)])
    usages = [harness.replies[name][-1].finish.usage for name in "ab"]  # type: ignore[union-attr]
    assert [(u.queue_seconds, u.first_token_seconds, u.total_seconds) for u in usages] == [(0, 1, 3), (3, 4, 6)]


def test_hints_reach_the_cache_and_change_no_answer() -> None:
    harness = HashHarness(pages=40)
    prompt = [1 + i % 20 for i in range(12)]
    harness.run(generate("a", prompt, max_tokens=1))
    tokens = pack(prompt)
    harness.run(Hint(id="h", tokens=tokens, pin_seconds=60, priority=3, tool_wait_seconds=5))
    assert harness.cache.pinned_pages == 3
    nodes = harness.cache.tree.nodes()
    assert {node.priority for node in nodes if node.parent is not None} == {3}
    harness.run(Hint(id="h", tokens=tokens, pin_seconds=0, last_use=True), Hint(id="h", tokens=b"", pin_seconds=1))
    assert harness.cache.pinned_pages == 0
    assert "h" not in harness.replies
    harness.run(generate("b", prompt, max_tokens=3))
    assert harness.answer("b") == alone(generate("b", prompt, max_tokens=3))
