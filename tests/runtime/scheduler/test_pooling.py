"""Embeddings in the scheduler: which states are summed and in which order, and that a request ends like any other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from engine_harness import generate
from hash_harness import HashHarness, alone
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.messages.replies import Embedded, Failed
from palmette.runtime.messages.requests import Abort, Embed, PoolingKind, Shutdown
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.pooling import Pooling

STEM = [1 + i % 20 for i in range(13)]


def embed(name: str, *inputs: list[int], pooling: PoolingKind = "mean") -> Embed:
    return Embed(id=name, inputs=tuple(map(pack, inputs or [STEM])), pooling=pooling)


def answered(harness: HashHarness, name: str) -> Embedded:
    (reply,) = harness.replies[name]
    assert isinstance(reply, Embedded)
    return reply


def vector(harness: HashHarness, name: str) -> npt.NDArray[np.float32]:
    return np.frombuffer(answered(harness, name).vectors[0], "<f4")


@settings(max_examples=60)
@given(st.integers(1, 40), st.lists(st.integers(1, 12), min_size=1, max_size=40), st.sampled_from(["mean", "last"]))
def test_the_sum_does_not_depend_on_the_chunks(length: int, chunks: list[int], kind: PoolingKind) -> None:
    states = np.random.default_rng(length).standard_normal((length, 5), np.float32) * np.float32(1e3)
    whole, pooling = Pooling.of(kind, length), Pooling.of(kind, length)
    whole.take(whole.wanted(0, length), states[whole.first :])
    start = 0
    while start < length:
        end = min(length, start + chunks[start % len(chunks)])
        wanted = pooling.wanted(start, end)
        assert pooling.take(wanted, states[wanted.start : wanted.stop]) is None
        start = end
    assert pooling.vector() == whole.vector()
    expected = states.astype(np.float64).mean(0) if kind == "mean" else states[-1]
    assert np.allclose(np.frombuffer(whole.vector(), "<f4"), expected, rtol=1e-6, atol=1e-4)


def test_states_that_were_taken_are_not_wanted_again() -> None:
    pooling = Pooling.of("mean", 10)
    pooling.take(pooling.wanted(0, 6), np.ones((6, 2), np.float32))
    assert (pooling.matchable, list(pooling.wanted(2, 5)), list(pooling.wanted(4, 8))) == (7, [], [6, 7])


def test_the_last_token_s_state_and_the_mean_of_all() -> None:
    harness = HashHarness()
    harness.run(embed("mean"), embed("last", pooling="last"))
    prefixes = [embed(f"p{n}", STEM[:n], pooling="last") for n in range(1, len(STEM) + 1)]
    harness.run(*prefixes)
    states = np.stack([vector(harness, each.id) for each in prefixes])
    assert (vector(harness, "last") == states[-1]).all()
    assert np.allclose(vector(harness, "mean"), states.mean(0), rtol=1e-5)


def test_a_cached_prefix_is_taken_for_the_last_token_only() -> None:
    harness = HashHarness(page_size=4)
    harness.run(generate("first", STEM, max_tokens=1))
    harness.run(embed("last", pooling="last"), embed("mean"))
    assert answered(harness, "last").usage.cached_tokens == len(STEM) - 1
    usage = answered(harness, "mean").usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.computed_tokens) == (len(STEM), 0, len(STEM))
    for name in ("last", "mean"):
        assert harness.answer(name) == alone(embed("alone", pooling="last" if name == "last" else "mean"))


def test_what_an_embedding_computed_is_cached_for_others() -> None:
    harness = HashHarness(page_size=4)
    harness.run(embed("mean"))
    harness.run(generate("next", [*STEM, 3], max_tokens=1))
    assert harness.replies["next"][-1].finish.usage.cached_tokens == len(STEM)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["mean", "last"])
def test_the_vectors_come_in_the_order_of_the_inputs(kind: PoolingKind) -> None:
    inputs = [STEM[:9], [5], [*STEM, 2, 2], STEM[:9], [4] * 17]
    harness = HashHarness(step_tokens=7, max_running=3)
    harness.run(embed("all", *inputs, pooling=kind))
    singles = [alone(embed("one", each, pooling=kind))[0] for each in inputs]
    assert list(answered(harness, "all").vectors) == singles
    assert answered(harness, "all").usage.prompt_tokens == sum(map(len, inputs))
    assert harness.core.counters().finished == 1


@pytest.mark.parametrize("kind", ["mean", "last"])
def test_one_that_gave_way_goes_on_where_it_was(kind: PoolingKind) -> None:
    long = [*STEM, *STEM[::-1]]
    harness = HashHarness(pages=8, page_size=4, step_tokens=5, policy="priority")
    harness.core.submit(embed("gives way", long, pooling=kind))
    for _ in range(3):
        harness.step()
    harness.run(generate("urgent", [20] * 12, max_tokens=4, priority=1))
    usage = answered(harness, "gives way").usage
    assert usage.retractions == 1
    assert usage.computed_tokens < 2 * len(long)
    assert harness.answer("gives way") == alone(embed("alone", long, pooling=kind))


def test_an_abort_is_answered_and_nothing_is_held() -> None:
    harness = HashHarness(step_tokens=5)
    harness.core.submit(embed("gone", STEM, STEM[::-1]))
    harness.core.submit(embed("stays", STEM[:7]))
    harness.step()
    harness.step()
    harness.core.submit(Abort("gone"))
    harness.run()
    (reply,) = harness.replies["gone"]
    assert isinstance(reply, Failed)
    assert reply.error.kind == "Aborted"
    assert harness.answer("stays") == alone(embed("alone", STEM[:7]))


def test_a_drain_finishes_what_runs() -> None:
    harness = HashHarness(step_tokens=5)
    harness.core.submit(embed("late"))
    harness.step()
    harness.run(Shutdown(drain=True))
    assert harness.answer("late") == alone(embed("alone"))


@pytest.mark.parametrize("kind", ["mean", "last"])
def test_states_that_are_no_numbers_fail_their_request(kind: PoolingKind) -> None:
    harness = HashHarness()
    harness.worker.poison = {21}
    harness.run(embed("bad", [*STEM, 21], pooling=kind), embed("good", pooling=kind))
    assert harness.answer("bad") == "InternalError"
    assert harness.answer("good") == alone(embed("alone", pooling=kind))


@pytest.mark.parametrize(
    ("request_", "kind", "named"),
    [
        (Embed(id="x", inputs=()), "InvalidRequest", "inputs"),
        (Embed(id="x", inputs=(pack([1]), b"")), "InvalidRequest", "inputs[1]"),
        (Embed(id="x", inputs=(pack([1, 99]),)), "InvalidRequest", "inputs[0]"),
        (Embed(id="x", inputs=(pack([1] * 129),)), "ContextLengthExceeded", "inputs[0]"),
        (Embed(id="x", inputs=(pack([1]),), pooling="max"), "InvalidRequest", "pooling"),  # type: ignore[arg-type]
        (Embed(id="x", inputs=(pack([1]),), deadline=-1.0), "InvalidRequest", "deadline"),
    ],
)
def test_bad_requests_are_refused_by_name(request_: Embed, kind: str, named: str) -> None:
    harness = HashHarness()
    harness.run(request_)
    (reply,) = harness.replies["x"]
    assert isinstance(reply, Failed)
    assert (reply.error.kind, reply.error.param) == (kind, named)
