"""`timeout` and `priority` of a select: refused where they are wrong, kept to, interpreted as compiled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from lang_helpers import line_of

import palmette as sgl
from palmette import function, gen, select
from palmette.lang.backends.base import Result
from palmette.lang.backends.scripted import ScriptedBranch
from palmette.lang.errors import ProgramError
from palmette.runtime.errors import InvalidRequest, TimedOut
from palmette.runtime.messages.branches import ScoreStep, Step


class _Slow(sgl.ScriptedBackend):
    """Scores late; keeps the steps it was asked for."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(lambda prompt: "x")
        self.seconds = seconds
        self.steps: list[Step] = []

    async def open(self, *, namespace: str = "") -> Any:
        return _SlowBranch(self, b"")


class _SlowBranch(ScriptedBranch):
    backend: _Slow

    async def run(self, steps: Sequence[Step], *, last: bool = False) -> AsyncGenerator[tuple[int, Result], None]:
        self.backend.steps += steps
        if any(isinstance(step, ScoreStep) for step in steps):
            await asyncio.sleep(self.backend.seconds)
        async for result in super().run(steps, last=last):
            yield result


def deciding(s, **options):
    s += "Is it late? " + gen("why", max_tokens=2)
    s += " So " + select("late", choices=["yes", "no"], **options)  # here
    s += "."


def test_a_select_that_takes_too_long_fails_at_its_line() -> None:
    state = function(deciding).run(timeout=0.05, backend=_Slow(5.0))
    with pytest.raises(ProgramError, match=r"select\('late'\): 0.05 s have passed") as caught:
        state["late"]
    assert isinstance(caught.value.cause, TimedOut)
    assert caught.value.where.line == line_of(deciding, "here")
    assert state["why"] == "x", "what was written before stays readable"


def test_options_of_the_run_hold_unless_it_has_its_own() -> None:
    backend = _Slow()
    function(deciding).run(priority=3, timeout=9, backend=backend).sync()

    @function
    def own(s):
        deciding(s, priority=5)
        s += gen("choice", choices=["a", "b"], timeout=7, priority=1)

    own.run(priority=3, backend=backend).sync()
    scores = [step for step in backend.steps if isinstance(step, ScoreStep)]
    assert [(step.priority, step.deadline) for step in scores] == [(3, 9), (5, None), (1, 7)]


def test_what_is_wrong_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidRequest, match="timeout=0 is not a number of seconds above 0"):
        select("x", ["a"], timeout=0)
    with pytest.raises(InvalidRequest, match=r"priority=1.5 is not a whole number"):
        select("x", ["a"], priority=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"select\(\).*'choises'.*Did you mean 'choices'"):
        select("x", choises=["a"])  # type: ignore[call-arg]


@pytest.mark.parametrize("compiled", [False, True])
def test_on_an_engine(engine: sgl.Engine, compiled: bool) -> None:
    @function
    def quick(s):
        deciding(s, timeout=30, priority=2)

    @function
    def late(s):
        deciding(s, timeout=1e-9)

    for program, failed in ((quick, False), (late, True)):
        state = (program.compile() if compiled else program).run(backend=engine, seed=1)
        assert ("have passed" in str(state.error())) == failed
        assert isinstance(state["why"], str)
    graph = quick.trace()
    [operation] = [each for each in graph.plan.tracks[0] if type(each).__name__ == "Choose"]
    assert (operation.priority, operation.timeout) == (2, 30)
