"""Programs in virtual time: no time passes but what is waited for or computed, and every run is the same."""

from __future__ import annotations

import asyncio
import time

import pytest

from palmette.radix_cache.cache import RadixCache
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import InternalError
from palmette.runtime.messages.replies import Generated, Reply, Scored
from palmette.runtime.messages.requests import Generate, Score
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.shape import PRESETS, model_shape
from palmette.runtime.simulation.core import SimulatedCore
from palmette.runtime.simulation.loop import SimulatedLink, VirtualLoop
from palmette.runtime.simulation.worker import SimulatedWorker, VirtualTime
from palmette.runtime.step_time import StepTimeModel


def test_sleeping_takes_virtual_time_only() -> None:
    clock = VirtualTime()
    loop = VirtualLoop(clock)
    started = time.monotonic()
    loop.run_until_complete(asyncio.sleep(3600))
    assert clock.now == pytest.approx(3600)
    assert time.monotonic() - started < 60
    loop.close()


def test_waiting_for_nothing_is_told() -> None:
    loop = VirtualLoop(VirtualTime())
    with pytest.raises(InternalError, match="nothing is going to come"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_an_engine_steps_while_nothing_else_can_run() -> None:
    def run() -> tuple[float, list[float]]:
        clock = VirtualTime()
        loop = VirtualLoop(clock)
        model = StepTimeModel(model_shape(PRESETS["llama-3.1-8b"]), DEVICES["h100"])
        cache = RadixCache(64, 16, clock=clock)
        worker = SimulatedWorker(model, clock, lambda seed, index: seed + index)
        core = SimulatedCore(
            EngineConfig(page_size=16), worker, cache, vocabulary=1000, context=512, time=clock, step_time=model
        )
        link = SimulatedLink(core, loop)
        ended: list[float] = []
        done = loop.create_future()

        def deliver(replies: object) -> None:
            assert isinstance(replies, list)
            found: list[Reply] = replies
            for reply in found:
                if isinstance(reply, Generated) and reply.finish is not None:
                    ended.append(clock.now)
                    if len(ended) == 2:
                        done.set_result(None)

        async def ask() -> None:
            link.start(deliver)
            for name in "ab":
                params = SamplingParams(max_tokens=5, seed=7, ignore_eos=True)
                link.send(Generate(id=name, prompt=pack(range(40)), params=params))
                await asyncio.sleep(1.0)
            await done

        loop.run_until_complete(ask())
        loop.close()
        return worker.busy, ended

    busy, ended = run()
    assert 0 < busy < 1
    assert ended[0] < 1 < ended[1] < 2
    assert run() == (busy, ended)


def test_choices_that_one_rows_logits_score_are_all_answered() -> None:
    clock = VirtualTime()
    model = StepTimeModel(model_shape(PRESETS["llama-3.1-8b"]), DEVICES["h100"])
    worker = SimulatedWorker(model, clock, lambda seed, index: index)
    core = SimulatedCore(
        EngineConfig(page_size=16), worker, RadixCache(64, 16, clock=clock), vocabulary=1000, context=512, time=clock
    )
    core.submit(Generate(id="text", prompt=pack(range(9)), params=SamplingParams(max_tokens=1), prompt_logprobs_from=0))
    core.submit(Score(id="choice", prefix=pack(range(40)), continuations=(pack([1]), pack([2]), pack([3, 4, 5]))))
    replies = [reply for _ in range(9) for reply in core.step()]
    assert {type(reply) for reply in replies} == {Generated, Scored}
    (scored,) = (reply for reply in replies if isinstance(reply, Scored))
    assert scored.logprobs == ((0.0,), (0.0,), (0.0, 0.0, 0.0))
