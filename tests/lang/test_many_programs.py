"""Many programs at once on few threads, and what they cost."""

from __future__ import annotations

import asyncio
import threading

from lang_helpers import until

import palmette as sgl
from palmette import function, gen


def test_200_programs_run_at_once_on_few_threads() -> None:
    running, most, gate = 0, 0, asyncio.Event()

    async def answer(prompt: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 200:
            gate.set()
        await asyncio.wait_for(gate.wait(), 20)
        return f"<{prompt}>"

    @function
    def program(s, n):
        s += f"{n}" + gen("x")

    before = threading.active_count()
    scripted = sgl.ScriptedBackend(answer)
    states = []
    watched = [program.run(n=n, backend=scripted) for n in range(200)]
    assert threading.active_count() - before <= 2
    states += [state["x"] for state in watched]
    assert states == [f"<{n}>" for n in range(200)]
    assert most == 200
    for state in watched:
        state.sync()
    until(lambda: scripted.open_branches == 0)


def test_a_batch_of_lazy_programs_needs_few_threads() -> None:
    arrived, gate = 0, asyncio.Event()

    async def answer(prompt: str) -> str:
        nonlocal arrived
        arrived += 1
        if arrived == 200:
            gate.set()
        await asyncio.wait_for(gate.wait(), 20)
        return "x"

    @function
    def program(s, n):
        s += f"{n}" + gen("x")

    states = program.run_batch([{"n": n} for n in range(200)], num_threads=3, backend=sgl.ScriptedBackend(answer))
    assert [state["x"] for state in states] == ["x"] * 200


def test_a_state_between_verbs_has_neither_task_nor_thread() -> None:
    @function
    def program(s):
        s += "a" + gen("x")
        s["x"]
        tasks = asyncio.all_tasks(s._interpreter.loop)
        assert len(tasks) <= 1  # at most the one that is just ending
        s += gen("y")

    program.run().sync()
