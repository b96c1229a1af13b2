"""Time-outs, deadlines, cancelling, priorities: what stops, what is said, and what stays readable."""

from __future__ import annotations

import asyncio
import time

import pytest
from lang_helpers import line_of, until

import palmette as sgl
from palmette import function, gen
from palmette.runtime.errors import Aborted, InvalidRequest, TimedOut


async def slow(prompt: str) -> str:
    if "wait" in prompt:
        await asyncio.sleep(60)
    return "fine"


def two(s, word="wait", n=None):
    s += "a" + gen("first")
    s += word
    s += gen("second", timeout=0.05, n=n)  # here
    s += " end"


@pytest.mark.parametrize("n", [None, 2])
def test_a_gen_that_takes_too_long_fails_at_its_line(n: int | None) -> None:
    scripted = sgl.ScriptedBackend(slow)
    state = function(two).run(n=n, backend=scripted)
    with pytest.raises(sgl.ProgramError, match=r"gen\('second'\): 0\.05 s have passed\. Raise timeout") as caught:
        state["second"]
    assert caught.value.where.line == line_of(two, "here")
    assert isinstance(caught.value.cause, TimedOut)
    assert caught.value.retryable
    assert state["first"] == "fine"
    assert state.text(partial=True).startswith("afine")
    until(lambda: scripted.open_branches == 0)


def test_a_gen_in_time_is_not_disturbed() -> None:
    assert function(two).run("go", backend=sgl.ScriptedBackend(slow)).text() == "afinegofine end"


def test_time_outs_and_priorities_of_a_run_hold_for_its_gens() -> None:
    @function
    def program(s):
        s += "x" + gen("y") + gen("z", priority=9, timeout=3)

    steps = []

    class Recording(sgl.ScriptedBackend):
        async def open(self, *, namespace: str = ""):
            branch = await super().open(namespace=namespace)
            run = branch.run

            def recorded(given, *, last=False):
                steps.extend(given)
                return run(given, last=last)

            branch.run = recorded
            return branch

    program.run(backend=Recording(["a", "b"]), priority=2, timeout=7.5).sync()
    assert [(step.priority, step.deadline) for step in steps] == [(2, 7.5), (9, 3)]


def test_a_program_past_its_deadline_fails_where_it_is() -> None:
    def program(s):
        s += "wait" + gen("x")  # here
        s += gen("y")

    scripted = sgl.ScriptedBackend(slow)
    state = function(program).run(deadline=0.05, backend=scripted)
    error = state.error()
    assert error is not None
    assert isinstance(error.cause, TimedOut)
    assert error.where.line == line_of(program, "here")
    assert "gen('x'): the program's deadline of 0.05 s has passed" in str(error)
    until(lambda: scripted.open_branches == 0)


def test_deadlines_of_a_batch_count_from_each_program() -> None:
    @function
    def program(s, word):
        s += word + gen("x")
        time.sleep(0.3)
        s["x"]

    scripted = sgl.ScriptedBackend(slow)
    items = [{"word": "go"}] * 4 + [{"word": "wait"}]
    states = program.run_batch(items, num_threads=1, deadline=1.0, backend=scripted)
    assert [state.error() is None for state in states] == [True, True, True, True, False]


async def test_deadlines_of_coroutines() -> None:
    @function
    async def program(s):
        s += "wait" + gen("x")
        await s.aget("x")

    with pytest.raises(sgl.ProgramError, match=r"deadline of 0\.05 s"):
        await program.arun(deadline=0.05, backend=sgl.ScriptedBackend(slow))


def test_a_program_is_cancelled_with_its_forks() -> None:
    @function
    def program(s):
        s += "a" + gen("first")
        forks = s.fork(2)
        forks += "wait" + gen("x")
        kept.append(forks)

    kept: list[sgl.StateGroup] = []
    scripted = sgl.ScriptedBackend(slow)
    state = program.run(backend=scripted)
    assert state["first"] == "fine"
    state2 = kept[0][1]
    kept[0][0].cancel("the other one is better")
    with pytest.raises(sgl.ProgramError, match=r"cancel\(\): the other one is better"):
        kept[0][0]["x"]
    state.cancel()
    error = state2.error()
    assert error is not None
    assert isinstance(error.cause, Aborted)
    until(lambda: scripted.open_branches == 0)


def test_the_first_fork_that_is_ready_wins() -> None:
    """What cancelling is for: several ways are tried, and the rest is stopped once one is there."""

    @function
    def race(s):
        forks = s.fork(3)
        forks += ["wait", "go", "wait"]
        forks += gen("x")
        s["winner"] = forks[1]["x"]
        for index in (0, 2):
            forks[index].cancel()
        s += "The winner: " + gen("end")

    state = race.run(backend=sgl.ScriptedBackend(slow))
    assert (state["winner"], state["end"]) == ("fine", "fine")


def test_values_that_are_no_deadlines() -> None:
    program = function(lambda s: None)
    for wrong in (0, -1, True, "soon", float("inf")):
        with pytest.raises(InvalidRequest, match="deadline="):
            program.run(deadline=wrong)
    with pytest.raises(InvalidRequest, match="option of run"):
        function(lambda s, deadline: None)
