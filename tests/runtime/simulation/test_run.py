"""Replays: leaps change nothing but rounding, doing without arrays nothing at all; what latencies and hits come to."""

from __future__ import annotations

import random
from statistics import fmean
from typing import get_args

import msgspec
import pytest

from palmette.runtime.config import EngineConfig, Policy
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.shape import PRESETS, model_shape
from palmette.runtime.scheduler.core import EngineCore
from palmette.runtime.simulation.core import SimulatedCore
from palmette.runtime.simulation.report import Targets, charts, figures, first_token, per_token, slowest_share, spread
from palmette.runtime.simulation.run import Outcome, replay
from palmette.runtime.simulation.traces import Trace, TraceRequest
from palmette.runtime.step_time import StepTimeModel


def steps() -> StepTimeModel:
    return StepTimeModel(model_shape(PRESETS["llama-3.1-8b"]), DEVICES["h100"])


def chats(count: int, *, seconds: float, seed: int = 0, block: int = 64) -> Trace:
    """Conversations whose turns come back with their history, and arrivals spread over `seconds`."""
    draw, fresh, rows = random.Random(seed), iter(range(10**6)), []
    open_: list[list[int]] = []
    for _ in range(count):
        history = draw.choice(open_) if open_ and draw.random() < 0.6 else [0, 1, 2]
        blocks = [*history, *(next(fresh) + 3 for _ in range(draw.randint(1, 9)))]
        open_.append(blocks)
        tokens = len(blocks) * block - draw.randrange(block)
        rows.append(
            TraceRequest(arrival=draw.uniform(0, seconds), prompt_tokens=tokens, output_tokens=draw.randint(0, 200),
                         blocks=tuple(blocks), covered=tokens)
        )  # fmt: skip
    rows.sort(key=lambda row: row.arrival)
    return Trace(
        name="chats", form="mooncake", block_tokens=block, requests=tuple(rows), distinct_blocks=next(fresh) + 3
    )


def replayed(trace: Trace, pool: int = 40_000, *, leaps: bool = True, **options: object) -> Outcome:
    config = EngineConfig(**{"page_size": 64, "max_running": 32, "step_tokens": 1024, **options})
    return replay(trace, config, steps(), pool_tokens=pool, leaps=leaps)


@pytest.mark.parametrize("seconds", [60.0, 4.0, 0.5])
def test_leaps_change_times_by_less_than_a_percent(seconds: float) -> None:
    trace = chats(120, seconds=seconds)
    quick, slow = replayed(trace), replayed(trace, leaps=False)
    assert quick.hit_rate == pytest.approx(slow.hit_rate, rel=0.01)
    for figure in (first_token, per_token):
        for ours, theirs in zip(figure(quick.answered), figure(slow.answered), strict=True):
            assert ours == pytest.approx(theirs, rel=0.01)
    apart = {each.name: each for each in slow.served}
    changes = [abs(each.first_token / apart[each.name].first_token - 1) for each in quick.served]
    assert fmean(changes) < 0.01


def test_most_steps_are_leapt_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    execute = SimulatedCore._execute

    def counted(core: SimulatedCore, *rest: object) -> object:
        nonlocal taken
        taken += 1
        return execute(core, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(SimulatedCore, "_execute", counted)
    outcome = replayed(chats(60, seconds=30.0))
    assert taken * 4 < outcome.steps


def test_the_steps_without_arrays_are_those_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = chats(40, seconds=2.0)
    short_cut = replayed(trace, pool=6000, leaps=False)
    monkeypatch.setattr(SimulatedCore, "_execute", EngineCore._execute)
    whole = replayed(trace, pool=6000, leaps=False)
    assert (whole.steps, whole.retractions) == (short_cut.steps, short_cut.retractions)
    for one, other in zip(whole.served, short_cut.served, strict=True):
        assert (one.name, one.cached_tokens, one.reusable_tokens) == (
            other.name,
            other.cached_tokens,
            other.reusable_tokens,
        )
        assert one.first_token == pytest.approx(other.first_token, rel=1e-9)
        assert one.finished == pytest.approx(other.finished, rel=1e-9)


def test_one_request_takes_what_its_steps_take() -> None:
    request = TraceRequest(arrival=0.0, prompt_tokens=1500, output_tokens=40)
    trace = Trace(name="one", form="azure", block_tokens=1, requests=(request,), distinct_blocks=0)
    outcome = replayed(trace)
    (served,) = outcome.served
    seconds = steps().seconds
    prefill = seconds(StepLoad().plus(1024, 0, logits=0)) + seconds(StepLoad().plus(476, 1024))
    decode = sum(seconds(StepLoad().plus(1, 1500 + index)) for index in range(39))
    assert served.first_token == pytest.approx(prefill, rel=1e-6)
    assert served.finished == pytest.approx(prefill + decode, rel=1e-6)
    assert served.per_token == pytest.approx(decode / 39, rel=1e-6)
    assert outcome.busy == pytest.approx(outcome.duration)
    assert outcome.steps == 41


def test_a_second_request_finds_the_first_ones_blocks() -> None:
    def row(arrival: float, blocks: tuple[int, ...]) -> TraceRequest:
        tokens = 64 * len(blocks)
        return TraceRequest(arrival=arrival, prompt_tokens=tokens, output_tokens=3, blocks=blocks, covered=tokens)

    rows = (row(0.0, (0, 1, 2)), row(5.0, (0, 1, 3)), row(9.0, (0, 1, 2)))
    trace = Trace(name="three", form="mooncake", block_tokens=64, requests=rows, distinct_blocks=4)
    outcome = replayed(trace)
    assert [each.cached_tokens for each in outcome.served] == [0, 128, 191], "the last prompt token is always computed"
    assert outcome.hit_rate == 319 / 576


@pytest.mark.parametrize("policy", get_args(Policy))
def test_every_policy_serves_everybody_and_leaps_alike(policy: str) -> None:
    trace = chats(60, seconds=1.0)
    tenants = [
        msgspec.structs.replace(row, tenant=f"{at % 3}", priority=at % 2) for at, row in enumerate(trace.requests)
    ]
    trace = msgspec.structs.replace(trace, requests=tuple(tenants))
    options = {"pool": 8000, "policy": policy, "ttft_target_ms": 500.0}
    quick, slow = replayed(trace, **options), replayed(trace, leaps=False, **options)  # type: ignore[arg-type]
    assert len(quick.answered) == 60
    assert quick.hit_rate == pytest.approx(slow.hit_rate, rel=0.02)
    assert first_token(quick.answered).mean == pytest.approx(first_token(slow.answered).mean, rel=0.02)


def test_what_can_never_fit_fails_and_the_rest_goes_on() -> None:
    rows = (TraceRequest(arrival=0.0, prompt_tokens=900, output_tokens=3),
            TraceRequest(arrival=0.0, prompt_tokens=90, output_tokens=3))  # fmt: skip
    trace = Trace(name="two", form="azure", block_tokens=1, requests=rows, distinct_blocks=0)
    outcome = replayed(trace, pool=640)
    assert [each.error.split(":")[0] for each in outcome.served] == ["NeverFits", ""]
    assert len(outcome.answered) == 1
    with pytest.raises(InvalidRequest, match="less than one page"):
        replayed(trace, pool=63)


def test_figures_of_a_replay() -> None:
    outcome = replayed(chats(50, seconds=3.0))
    assert spread([3.0, 1.0, 2.0]) == (2.0, 3.0, 3.0, 2.0)
    assert 0.05 <= slowest_share(outcome.answered) <= 1
    assert outcome.goodput(1e9, 1e9) == pytest.approx(50 / outcome.duration)
    assert outcome.goodput(0.0, 1e9) == 0
    assert {chart.title for chart in charts([outcome], [])} >= {"Hit rate by cache size"}
    assert figures([outcome], [], Targets(1.0, 0.1))["runs"][0]["requests"] == 50  # type: ignore[index]
