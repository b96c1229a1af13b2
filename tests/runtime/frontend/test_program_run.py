"""A plan beside the frontend of a real engine: clients that don't answer, and runs that are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import palmette as pt
from palmette.runtime.frontend.programs.run import GraphRun
from palmette.runtime.frontend.programs.shared import Shared
from palmette.runtime.messages.branches import Text
from palmette.runtime.messages.programs import Call, Finish, Insert, Plan, RunProgram, Value, Write
from palmette.runtime.messages.sampling import SamplingParams


@pytest.fixture
def engine() -> Iterator[pt.Engine]:
    with pt.Engine("tiny", threads=1, kv_tokens=1024) as engine:
        yield engine


def write(slot: int, tokens: int, *parts: Text | Insert) -> Write:
    return Write(parts=parts, params=(SamplingParams(max_tokens=tokens, ignore_eos=True),), slots=(slot,))


ASKING = Plan(
    ((write(0, 2, Text("a b")), Call(arguments=(), slot=1, seconds=0.01), write(2, 900, Insert(Value(1))), Finish()),),
    3,
)
LARGE = Plan(((write(0, 800, Text("c d")), Finish()),), 1)


async def drained(run: GraphRun) -> None:
    async for _ in run.events():
        pass


def test_a_client_that_never_answers_keeps_nobody_out(engine: pt.Engine) -> None:
    frontend = engine.frontend

    async def run() -> None:
        frontend.gate.prefilled(1000, 0.1)  # so that a pool is filled in a tenth of a second
        silent = asyncio.ensure_future(drained(frontend.run_program(RunProgram(plan=ASKING))))
        await asyncio.wait_for(drained(frontend.run_program(RunProgram(plan=LARGE))), 30)
        assert not silent.done()
        silent.cancel()
        await asyncio.gather(silent, return_exceptions=True)
        assert len(frontend.gate) == 0

    engine.run(run())


def test_a_run_that_is_given_up_twice_leaves_nothing(engine: pt.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time while it still gives back what it holds."""
    stop, stopped = Shared._stop, asyncio.Event()

    async def slowly(shared: Shared) -> None:
        await asyncio.sleep(0.2)
        await stop(shared)
        stopped.set()

    monkeypatch.setattr(Shared, "_stop", slowly)
    frontend = engine.frontend

    async def run() -> None:
        task = asyncio.ensure_future(drained(frontend.run_program(RunProgram(plan=LARGE))))
        while not len(frontend.gate):
            await asyncio.sleep(0.01)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.02)
        await asyncio.gather(task, return_exceptions=True)
        assert len(frontend.gate) == 0
        await asyncio.wait_for(stopped.wait(), 5)

    engine.run(run())
