"""The samplers against plain definitions, and row by row: a row's draw never depends on the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_paths import native_library

from palmette.kernels.cpu.library import Library
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.models.loading import load_model
from palmette.runtime.plan import SAMPLE, SamplePlan, StepResult, decode, encode
from palmette.runtime.scheduler.batch import _SampleArrays
from palmette.runtime.scheduler.sequence import Generation
from palmette.runtime.scheduler.stops import StopChecker
from palmette.runtime.vocabulary import Vocabulary
from palmette.runtime.worker import sampler
from palmette.runtime.worker.native_sampler import DRAWN, NativeSampler
from palmette.runtime.worker.sampler import Sampled, uniform_noise
from palmette.runtime.worker.sampler import sample as numpy_sample

VOCABULARY = Vocabulary(tuple(bytes([i % 256]) for i in range(3000)), {}, (0,))


Sample = Callable[[np.ndarray[Any, np.dtype[np.float32]], SamplePlan], Sampled]


@pytest.fixture(scope="session")
def native() -> Library:
    return native_library()


@pytest.fixture(scope="session", params=["numpy", "native", "engine"])
def sample(request: pytest.FixtureRequest) -> Sample:
    """In numpy, in native code in this thread, and over the threads of a model's engine."""
    if request.param == "numpy":
        return numpy_sample
    if request.param == "native":
        return NativeSampler(request.getfixturevalue("native"))
    engine = load_model(resolve("tiny"), "float32", "cpu", threads=2).native
    assert engine is not None
    return NativeSampler(engine)


def generation(outputs: int = 0, seen: dict[int, int] | None = None, **options: Any) -> Generation:
    params = SamplingParams(**options).check(VOCABULARY.size)
    return Generation(
        params=params, seed=params.seed or 0, first_output_index=0, max_tokens=10,
        stops=StopChecker(VOCABULARY), barred=(0,), seen=seen, outputs=outputs,
    )  # fmt: skip


def plan_of(*generations: Generation) -> SamplePlan:
    arrays = _SampleArrays()
    for row, each in enumerate(generations):
        arrays.draw(row, each)
    return arrays.plan()


def logits(rows: int = 1, seed: int = 0, spread: float = 3.0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (np.random.default_rng(seed).standard_normal((rows, VOCABULARY.size)) * spread).astype(np.float32)


def test_greedy_takes_the_largest_and_the_first_of_equals(sample: Sample) -> None:
    raw = logits()
    raw[0, [7, 1234]] = raw.max() + 1
    assert sample(raw, plan_of(generation(temperature=0.0))).tokens.tolist() == [7]
    assert sample(raw, plan_of(generation(temperature=1.0, top_k=1))).tokens.tolist() == [7]


def test_logprobs_are_of_the_raw_logits(sample: Sample) -> None:
    raw = logits()
    drawn = sample(raw, plan_of(generation(temperature=0.3, top_p=0.5, logprobs=True, top_logprobs=3)))
    exact = raw[0].astype(np.float64)
    exact -= np.log(np.exp(exact - exact.max()).sum()) + exact.max()
    assert drawn.logprobs[0] == pytest.approx(exact[drawn.tokens[0]], abs=1e-5)
    best = np.argsort(-exact, kind="stable")[:3]
    assert [token for token, _ in drawn.top.at(0)] == best.tolist()
    assert [value for _, value in drawn.top.at(0)] == pytest.approx(exact[best].tolist(), abs=1e-5)


def test_no_more_tokens_are_listed_than_there_are(sample: Sample) -> None:
    raw = logits()[:, :5].copy()
    drawn = sample(raw, plan_of(generation(temperature=0.0, logprobs=True, top_logprobs=8)))
    assert [token for token, _ in drawn.top.at(0)] == np.argsort(-raw[0], kind="stable").tolist()


def test_what_the_model_gives_no_probability_is_not_listed(sample: Sample) -> None:
    """Nor is anything but a finite number ever told: JSON has no other."""
    raw = np.full((2, VOCABULARY.size), -np.inf, dtype=np.float32)
    raw[:, [5, 9]] = [2.0, 3.0]
    raw[1, 7] = -3e38
    drawn = sample(raw, plan_of(*(generation(logprobs=True, top_logprobs=8) for _ in raw)))
    assert not drawn.errors
    assert [token for token, _ in drawn.top.at(0)] == [9, 5]
    assert [token for token, _ in drawn.top.at(1)] == [9, 5, 7]
    assert all(np.isfinite(value) for row in (0, 1) for _, value in drawn.top.at(row))
    assert np.isfinite(drawn.logprobs).all()


def test_bias_and_penalties(sample: Sample) -> None:
    raw = np.zeros((1, VOCABULARY.size), dtype=np.float32)
    raw[0, :4] = [4.0, 3.9, 3.8, 3.7]
    greedy = {"temperature": 0.0}

    def first(**options: Any) -> int:
        seen = options.pop("seen", None)
        return int(sample(raw, plan_of(generation(seen=seen, **greedy, **options))).tokens[0])

    assert first(logit_bias={9: 5.0}) == 9
    assert first(seen={0: 0, 1: 1}, frequency_penalty=0.5) == 0  # prompt tokens are not counted
    assert first(seen={0: 2}, frequency_penalty=0.08) == 1  # 3.84 against 3.9
    assert first(seen={0: 2, 1: 1}, presence_penalty=0.5) == 2
    assert first(seen={0: 0, 1: 1}, repetition_penalty=2.0) == 2  # prompt and output
    assert first(seen={2: 1}, presence_penalty=-1.0) == 2


def test_ids_that_end_the_output_are_barred_before_min_tokens(sample: Sample) -> None:
    raw = logits()
    raw[0, 0] = raw.max() + 5
    assert sample(raw, plan_of(generation(temperature=0.0, min_tokens=2, outputs=1))).tokens[0] != 0
    assert sample(raw, plan_of(generation(temperature=0.0, min_tokens=2, outputs=2))).tokens[0] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 5},
        {"top_p": 0.4},
        {"min_p": 0.2},
        {"top_k": 50, "top_p": 0.7, "min_p": 0.05},
        {"top_p": 0.9999},
        {"top_k": 2000, "temperature": 5.0},
        {"temperature": 100.0, "top_p": 0.9},
        {"temperature": 50.0, "min_p": 0.9},
    ],
)
def test_filters_keep_what_their_definition_keeps(sample: Sample, options: dict[str, Any]) -> None:
    raw = logits(spread=2.0)
    scaled = raw[0].astype(np.float64) / options.get("temperature", 1.0)
    order = np.argsort(-scaled, kind="stable")
    if "top_k" in options:
        order = order[: options["top_k"]]
    weights = np.exp(scaled[order] - scaled.max())
    if "top_p" in options:
        mass = weights.sum()
        keep = int((np.cumsum(weights) < options["top_p"] * mass).sum()) + 1
        order, weights = order[:keep], weights[:keep]
    if "min_p" in options:
        order = order[weights >= options["min_p"] * weights[0]]
    allowed = set(order.tolist())
    drawn = {int(sample(raw, plan_of(generation(seed=seed, **options))).tokens[0]) for seed in range(200)}
    assert drawn <= allowed
    assert len(drawn) >= min(3, len(allowed))


def test_frequencies_follow_the_distribution(sample: Sample) -> None:
    raw = np.full((1, VOCABULARY.size), -1e9, dtype=np.float32)
    raw[0, [3, 5, 8]] = np.log([0.5, 0.3, 0.2])
    draws = [int(sample(raw, plan_of(generation(seed=seed))).tokens[0]) for seed in range(3000)]
    shares = [draws.count(token) / len(draws) for token in (3, 5, 8)]
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.04)


def test_noise_is_uniform_and_a_function_of_seed_and_index() -> None:
    noise = np.array([uniform_noise(seed, index) for seed in range(50) for index in range(50)])
    assert noise.min() >= 0
    assert noise.max() < 1
    assert np.histogram(noise, bins=10, range=(0, 1))[0] == pytest.approx([250] * 10, abs=70)
    assert uniform_noise(2**64 - 1, 2**40) == uniform_noise(2**64 - 1, 2**40)
    assert uniform_noise(0, 1) != uniform_noise(1, 0)


def test_a_row_that_is_not_finite_fails_alone(sample: Sample) -> None:
    raw = logits(3)
    raw[1, 17] = np.nan
    drawn = sample(raw, plan_of(*(generation(temperature=0.0) for _ in range(3))))
    assert set(drawn.errors) == {1}
    assert drawn.tokens[[0, 2]].tolist() == raw[[0, 2]].argmax(axis=1).tolist()


def test_a_row_whose_parameters_leave_nothing_fails_alone(sample: Sample) -> None:
    odd = generation(temperature=1.0)
    # Past SamplingParams.check on purpose: a bound that was forgotten there must not cost the others their step.
    odd.params = SamplingParams(repetition_penalty=1e-46, top_k=5, min_p=0.5)
    odd.seen = dict.fromkeys(range(VOCABULARY.size), 1)
    drawn = sample(logits(2), plan_of(odd, generation(temperature=0.0)))
    assert set(drawn.errors) == {0}
    assert drawn.tokens[1] == logits(2)[1].argmax()


@settings(max_examples=25)
@given(st.data())
def test_a_row_does_not_depend_on_its_batch(sample: Sample, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 6))
    raw = logits(rows, seed=data.draw(st.integers(0, 99)))
    generations = [
        generation(
            temperature=data.draw(st.sampled_from([0.0, 0.7, 1.0])),
            top_p=data.draw(st.sampled_from([1.0, 0.9])),
            top_k=data.draw(st.sampled_from([None, 40])),
            min_p=data.draw(st.sampled_from([0.0, 0.1])),
            seed=data.draw(st.integers(0, 2**64 - 1)),
            logprobs=True,
            top_logprobs=2,
            outputs=data.draw(st.integers(0, 5)),
        )
        for _ in range(rows)
    ]
    together = sample(raw, plan_of(*generations))
    for row in range(rows):
        alone = sample(raw[row : row + 1].copy(), plan_of(generations[row]))
        assert alone.tokens[0] == together.tokens[row]
        assert alone.logprobs[0] == together.logprobs[row]
        assert alone.top.at(0) == together.top.at(row)


def scores_of(*scored: tuple[int, int, int]) -> SamplePlan:
    return msgspec.structs.replace(plan_of(), scored=np.array(scored, dtype=np.int32))


def test_many_tokens_of_one_row_are_scored_as_each_alone(sample: Sample) -> None:
    raw = logits(3)
    wanted = [(row, target, row) for row in (1, 0, 2, 1) for target in (5, 2999, 5)]
    together = sample(raw, scores_of(*wanted))
    for index, (row, target, count) in enumerate(wanted):
        alone = sample(raw[row : row + 1].copy(), scores_of((0, target, count)))
        assert alone.scored_logprobs[0] == together.scored_logprobs[index]
        assert alone.scored_top.at(0) == together.scored_top.at(index)


def test_scores_are_those_of_the_logits_that_are_there_now(sample: Sample) -> None:
    raw, plan = logits(1), scores_of((0, 7, 0), (0, 8, 0))
    sample(raw, plan)
    raw[:] = logits(1, seed=1)
    again, fresh = sample(raw, plan), sample(raw.copy(), plan)
    assert again.scored_logprobs.tolist() == fresh.scored_logprobs.tolist()


def test_a_row_is_summed_once_for_all_that_it_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[float] = []
    normaliser = sampler._log_normaliser

    def count(row: np.ndarray[Any, np.dtype[np.float32]]) -> float:
        summed.append(normaliser(row))
        return summed[-1]

    monkeypatch.setattr(sampler, "_log_normaliser", count)
    numpy_sample(logits(2), scores_of(*((row, target, 0) for row in range(2) for target in range(500))))
    assert len(summed) == 2


def test_plans_and_results_travel_as_bytes(sample: Sample) -> None:
    plan = plan_of(generation(logit_bias={3: 1.5}, seen={1: 2, 4: 0}, presence_penalty=0.5), generation())
    back = decode(encode(plan), SamplePlan)
    for name in plan.__struct_fields__:
        before, after = getattr(plan, name), getattr(back, name)
        assert before.dtype == after.dtype
        assert np.array_equal(before, after), name
    drawn = sample(logits(2), plan)
    result = StepResult(
        step=3, tokens=drawn.tokens, logprobs=drawn.logprobs, top=drawn.top,
        scored_logprobs=drawn.scored_logprobs, scored_top=drawn.scored_top, sample_errors={1: "x"},
    )  # fmt: skip
    assert decode(encode(result), StepResult).sample_errors == {1: "x"}


def test_a_mask_bars_what_it_does_not_allow(sample: Sample) -> None:
    raw = logits(3)
    plan = plan_of(generation(temperature=0.0), generation(temperature=1.0, seed=5), generation(temperature=0.0))
    allowed = np.zeros((2, -(-VOCABULARY.size // 32) * 32), dtype=np.uint8)
    allowed[0, [40, 70, 2999]] = allowed[1, 33] = 1
    samples = plan.samples.copy()
    samples["mask"] = [0, 2, 1]
    plan = msgspec.structs.replace(
        plan, samples=samples, masks=np.packbits(allowed, axis=1, bitorder="little").view(np.uint32)
    )
    tokens = sample(raw, plan).tokens.tolist()
    assert tokens == [int(raw[0].argmax()), 33, max((40, 70, 2999), key=lambda token: raw[2, token])]


def test_a_mask_that_allows_nothing_fails_alone(sample: Sample) -> None:
    plan = plan_of(generation(temperature=0.0), generation(temperature=0.5))
    samples = plan.samples.copy()
    samples["mask"] = [0, 1]
    plan = msgspec.structs.replace(plan, samples=samples, masks=np.zeros((1, 94), dtype=np.uint32))
    drawn = sample(logits(2), plan)
    assert set(drawn.errors) == {1}
    assert drawn.tokens[0] == logits(2)[0].argmax()


@settings(max_examples=50)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_native_code_has_the_same_noise(native: Library, seed: int, index: int) -> None:
    assert native.noise(seed, index) == uniform_noise(seed, index)


def test_native_code_reads_the_records_as_they_are_written(native: Library) -> None:
    sizes = (native.sample_bytes, native.scored_bytes, native.drawn_bytes)
    assert sizes == (SAMPLE.itemsize, 12, DRAWN.itemsize)


@pytest.mark.parametrize("options", [{"top_p": 1e-50}, {"temperature": 1e-39}])
def test_values_that_vanish_in_float32_still_draw(sample: Sample, options: dict[str, Any]) -> None:
    raw = logits()
    assert sample(raw, plan_of(generation(**options))).tokens[0] == raw[0].argmax()


def test_a_mask_bars_the_tokens_that_it_has_no_bits_for(sample: Sample) -> None:
    plan = plan_of(generation(temperature=0.0))
    samples = plan.samples.copy()
    samples["mask"] = 1
    plan = msgspec.structs.replace(plan, samples=samples, masks=np.array([[0b1010]], dtype=np.uint32))
    raw = logits()
    assert sample(raw, plan).tokens[0] == max((1, 3), key=lambda token: raw[0, token])
