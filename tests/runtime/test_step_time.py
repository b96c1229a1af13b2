"""The step-time model: bounded, monotone, learns, shrugs off outliers, and answers how many tokens fit."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.roofline.bound import step_bound
from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.roofline.device import DEVICES, Device
from palmette.runtime.roofline.shape import PRESETS, model_shape
from palmette.runtime.step_time import FASTEST, SLOWEST, StepTimeModel

SHAPE = model_shape(PRESETS["llama-3-8b"], "bf16", "bf16")
LAPTOP = Device(name="laptop", bandwidth=2e10, rates={"f32": 2e11, "bf16": 4e11}, memory=16e9, cache=2e7)


def loads() -> st.SearchStrategy[StepLoad]:
    row = st.tuples(st.integers(1, 600), st.integers(0, 9000))
    return st.lists(row, min_size=1, max_size=12).map(_load)


def _load(rows: list[tuple[int, int]]) -> StepLoad:
    load = StepLoad()
    for new, context in rows:
        load = load.plus(new, context)
    return load


def _random_load(draw: random.Random) -> StepLoad:
    rows = [(1, draw.randrange(20, 6000)) for _ in range(draw.randrange(0, 64))]
    if draw.random() < 0.4 or not rows:
        rows.append((draw.randrange(16, 800), draw.choice([0, draw.randrange(4000)])))
    return _load(rows)


def _true_seconds(load: StepLoad, device: Device, slow: float = 1.0) -> float:
    """A machine that reaches unequal shares of its limits: nothing that the model was told."""
    bound = step_bound(SHAPE, device, load)
    kv, bandwidth = bound.cost.kv, device.bandwidth
    linears = max(bound.cost.weights / (0.8 * bandwidth), bound.linears / 0.45)
    return slow * (3e-3 + linears + kv / (0.3 * bandwidth) + bound.attention / 0.2 + bound.head / 0.4)


@pytest.mark.parametrize("device", [LAPTOP, DEVICES["h100"]])
@given(load=loads())
def test_the_seed_is_near_the_roofline(device: Device, load: StepLoad) -> None:
    bound = step_bound(SHAPE, device, load)
    predicted = StepTimeModel(SHAPE, device, reached=1.0).seconds(load)
    summed = bound.cost.bytes / device.bandwidth + bound.arithmetic
    assert bound.arithmetic < predicted <= summed + 1e-3


@given(load=loads(), new=st.integers(0, 500), context=st.integers(0, 5000), seed=st.integers(0, 9))
def test_more_load_never_takes_less_time(load: StepLoad, new: int, context: int, seed: int) -> None:
    model, draw = StepTimeModel(SHAPE, LAPTOP), random.Random(seed)
    for _ in range(40):
        model.observe(_random_load(draw), draw.choice([1e-9, 1e-3, 0.1, 5.0, 1e9]))
    assert 0 < model.seconds(load) <= model.seconds(load.plus(new, context))


@given(st.lists(st.tuples(loads(), st.floats(allow_nan=True)), min_size=1, max_size=60))
def test_factors_stay_in_their_bounds_whatever_is_observed(observed: list[tuple[StepLoad, float]]) -> None:
    model = StepTimeModel(SHAPE, LAPTOP)
    seeds = model.factors
    for load, seconds in observed:
        model.observe(load, seconds)
    for part, factor in model.factors.items():
        assert FASTEST * seeds[part] <= factor <= SLOWEST * seeds[part]


@given(base=st.one_of(st.just(StepLoad()), loads()), context=st.integers(0, 9000), share=st.floats(0.3, 30))
def test_tokens_within_is_the_largest_chunk_in_time(base: StepLoad, context: int, share: float) -> None:
    model = StepTimeModel(SHAPE, LAPTOP)
    budget = share * model.seconds(base)
    fits = model.tokens_within(budget, base, context)
    if fits:
        assert model.seconds(base.plus(fits, context)) <= budget * (1 + 1e-9)
    assert model.seconds(base.plus(fits + 1, context)) > budget * (1 - 1e-9)


def test_it_learns_a_machine() -> None:
    draw, model = random.Random(1), StepTimeModel(SHAPE, LAPTOP)
    for _ in range(400):
        load = _random_load(draw)
        model.observe(load, _true_seconds(load, LAPTOP) * draw.gauss(1, 0.05))
    errors = []
    for _ in range(200):
        load = _random_load(draw)
        errors.append(abs(model.seconds(load) / _true_seconds(load, LAPTOP) - 1))
    assert sorted(errors)[190] < 0.08, sorted(errors)[-20:]
    assert sum(errors) / len(errors) < 0.03


def test_it_follows_a_machine_that_slows_down() -> None:
    draw, model = random.Random(2), StepTimeModel(SHAPE, LAPTOP)
    for step in range(2400):
        load = _random_load(draw)
        model.observe(load, _true_seconds(load, LAPTOP, slow=1.0 if step < 400 else 2.0))
    load = _random_load(draw)
    assert model.seconds(load) == pytest.approx(_true_seconds(load, LAPTOP, slow=2.0), rel=0.1)


def test_outliers_hardly_matter() -> None:
    draw, model = random.Random(3), StepTimeModel(SHAPE, LAPTOP)
    for step in range(1000):
        load = _random_load(draw)
        stall = 40.0 if step > 100 and step % 20 == 0 else 1.0
        model.observe(load, _true_seconds(load, LAPTOP) * stall)
    errors = [model.seconds(load) / _true_seconds(load, LAPTOP) - 1 for load in (_random_load(draw) for _ in range(99))]
    assert max(map(abs, errors)) < 0.2


def test_a_call_takes_microseconds() -> None:
    draw, model = random.Random(4), StepTimeModel(SHAPE, LAPTOP)
    some = [_random_load(draw) for _ in range(500)]

    def microseconds(call: object) -> float:
        best = 1e9
        for _ in range(5):
            start = time.process_time()
            for load in some:
                call(load)  # type: ignore[operator]
            best = min(best, (time.process_time() - start) / len(some) * 1e6)
        return best

    assert microseconds(model.seconds) < 15
    assert microseconds(lambda load: model.observe(load, 0.1)) < 40
    assert microseconds(lambda load: model.tokens_within(0.5, load, 100)) < 25
    print(
        "µs: seconds", microseconds(model.seconds), "observe", microseconds(lambda load: model.observe(load, 0.1)),
        "tokens_within", microseconds(lambda load: model.tokens_within(0.5, load, 100)),
    )  # fmt: skip
