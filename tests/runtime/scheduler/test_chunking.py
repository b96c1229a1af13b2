"""Prefill chunks follow the time that decodes may be kept waiting."""

from __future__ import annotations

from engine_harness import generate
from hash_harness import HashHarness, alone
from waiting import sequence

from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.scheduler.batch import Row, StepBatch
from palmette.runtime.scheduler.chunking import LEAST_PREFILL, PrefillBudget, step_load
from palmette.runtime.scheduler.targets import Targets


class Linear:
    """A step takes a millisecond a token."""

    def __init__(self) -> None:
        self.observed: list[tuple[StepLoad, float]] = []

    def seconds(self, load: StepLoad) -> float:
        return load.tokens / 1e3

    def observe(self, load: StepLoad, seconds: float) -> None:
        self.observed.append((load, seconds))

    def tokens_within(self, seconds: float, base: StepLoad, context: int) -> int:
        return max(0, int(seconds * 1e3 + 1e-9) - base.tokens)


def batch_of(decodes: int, tpot: float | None = None) -> StepBatch:
    batch = StepBatch(0)
    for order in range(decodes):
        batch.add(Row(sequence(order, length=9, targets=Targets(tpot=tpot)), 8, 9))
    return batch


def test_a_chunk_fills_the_target_beside_decodes_and_the_step_without() -> None:
    budget = PrefillBudget(500, 0.1, Linear())
    batch = batch_of(10)
    budget.begin(batch.rows)
    assert budget.room(batch, 0) == 90
    row = Row(sequence(99, length=60), 0, 60)
    batch.add(row)
    budget.took(row)
    assert budget.room(batch, 0) == 30
    alone_ = batch_of(0)
    budget.begin(alone_.rows)
    assert budget.room(alone_, 0) == 500


def test_prefill_progresses_whatever_the_target_and_the_step_bounds_it() -> None:
    for step_tokens, expected in ((500, LEAST_PREFILL), (12, 2)):
        budget = PrefillBudget(step_tokens, 0.001, Linear())
        batch = batch_of(10)
        budget.begin(batch.rows)
        assert budget.room(batch, 0) == expected
        row = Row(sequence(99, length=expected), 0, expected)
        batch.add(row)
        budget.took(row)
        assert budget.room(batch, 0) == 0


def test_a_requests_own_target_for_a_token_counts_where_it_is_less() -> None:
    for tpot, expected in ((0.05, 40), (0.5, 90)):
        budget = PrefillBudget(500, 0.1, Linear())
        batch = batch_of(10, tpot)
        budget.begin(batch.rows)
        assert budget.room(batch, 0) == expected


def test_without_model_or_target_the_step_alone_bounds() -> None:
    for budget in (PrefillBudget(500, 0.1, None), PrefillBudget(500, None, Linear())):
        batch = batch_of(10)
        budget.begin(batch.rows)
        assert budget.room(batch, 0) == 490


def test_a_load_adds_up_its_rows() -> None:
    one, other = sequence(0, length=30), sequence(1, length=9)
    load = StepLoad()
    for context, new in ((10, 20), (8, 1)):
        load = load.plus(new, context, logits=0)
    assert step_load([Row(one, 10, 30), Row(other, 8, 9)]) == load


def test_the_engine_keeps_the_target_and_tells_the_model_how_long_steps_took() -> None:
    now = [0.0]
    model = Linear()
    harness = HashHarness(
        pages=400, context=400, step_tokens=300, itl_target_ms=40.0, clock=lambda: now[0], step_time=model
    )
    forward = harness.worker.forward

    def in_time(plan: object) -> object:
        now[0] += len(plan.tokens) / 1e3  # type: ignore[attr-defined]
        return forward(plan)  # type: ignore[arg-type]

    harness.worker.forward = in_time  # type: ignore[method-assign, assignment]
    decode = generate("decode", [1, 2, 3], max_tokens=30, ignore_eos=True)
    prompts = [generate(f"long{i}", [1 + (i + j * j) % 20 for j in range(200)], max_tokens=2) for i in range(2)]
    harness.core.submit(decode)
    harness.step()
    harness.run(*prompts)
    sizes = [len(plan.tokens) for plan in harness.worker.steps]
    assert max(sizes) == 40
    assert sizes.count(40) >= 9, "two prompts of 200 tokens beside one decode"
    assert [load.tokens for load, _ in model.observed] == sizes
    assert all(abs(seconds - load.tokens / 1e3) < 1e-9 for load, seconds in model.observed)
    for request in (decode, *prompts):
        assert harness.answer(request.id) == alone(request)
