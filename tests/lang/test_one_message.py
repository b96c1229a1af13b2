"""Nodes that need no Python in between travel in one message; streamed programs never wait for a thread for ever."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from lang_helpers import until

import palmette as sgl
from palmette import assistant, function, gen, select, user
from palmette.lang.threads import ProgramThreads
from palmette.runtime.errors import BranchLost


class Counting(sgl.ScriptedBackend):
    """Counts messages: the steps of each run, and whether it was the last."""

    def __init__(self, *args, hold: threading.Event | None = None, **options) -> None:
        super().__init__(*args, **options)
        self.messages: list[tuple[int, bool]] = []
        self.hold = hold

    async def open(self, *, namespace: str = ""):
        if self.hold is not None:
            await asyncio.to_thread(self.hold.wait, 10)
        branch = await super().open(namespace=namespace)
        run = branch.run

        def counted(steps, *, last=False):
            self.messages.append((len(steps), last))
            return run(steps, last=last)

        branch.run = counted
        return branch


def answer(prompt: str) -> str:
    return f"[{len(prompt)}]"


@function
def long_program(s, written=None):
    s += user("a") + assistant(gen("x"))
    s += user("b") + assistant(gen("y") + select("z", ["n", "m"]) + gen("w"))
    if written is not None:
        written.set()


def test_a_program_without_reads_is_one_message() -> None:
    written = threading.Event()
    scripted = Counting(answer, hold=written)
    state = long_program.run(written, backend=scripted)
    text = state.text()
    # What was written before the first message began goes along with it or in the next; nothing is sent after it.
    assert sum(steps for steps, _ in scripted.messages) <= 6
    assert len(scripted.messages) <= 3
    assert scripted.messages[-1][1], "the branch ended with the last message"
    assert text == long_program.run(backend=sgl.ScriptedBackend(answer)).text()
    assert [call[0] for call in scripted.calls].count("generate") == 3


def test_reads_part_messages_and_change_nothing() -> None:
    @function
    def read(s):
        s += user("a") + assistant(gen("x"))
        s["x"]
        s += user("b") + assistant(gen("y") + select("z", ["n", "m"]))
        s["z"]
        s += assistant(gen("w"))
        return s.text()

    assert read.run(backend=sgl.ScriptedBackend(answer)).ret_value.count("<assistant>") == 3


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_branch_lost_between_two_steps_goes_on_behind_what_was_done(lost: int) -> None:
    calls = 0

    def loses(prompt: str) -> str:
        nonlocal calls
        calls += 1
        if calls == lost:
            raise BranchLost("gone")
        return answer(prompt)

    written = threading.Event()
    scripted = Counting(loses, hold=written)
    expected = long_program.run(backend=sgl.ScriptedBackend(answer)).text()
    assert long_program.run(written, backend=scripted).text() == expected
    assert calls == 4
    until(lambda: scripted.open_branches == 0)


def test_a_step_that_fails_names_its_own_line() -> None:
    def fails_third(prompt: str) -> str:
        if prompt.count("[") == 2:
            raise RuntimeError("fails here")
        return answer(prompt)

    written = threading.Event()
    state = long_program.run(written, backend=Counting(fails_third, hold=written))
    error = state.error()
    assert error is not None
    assert error.node == "gen('w')"
    assert state["x"].startswith("[")
    assert state["y"].startswith("[")
    assert state["z"] == "n"


def test_streamed_programs_that_wait_for_each_other_end() -> None:
    """Each waits for the one behind it, and there are more of them than threads."""
    count = 150
    states: list[sgl.ProgramState] = []
    started = threading.Event()

    @function
    def program(s, index):
        started.wait(10)
        s += "x" + gen("y")
        s["z"] = s["y"] if index + 1 == count else states[index + 1]["z"]

    scripted = sgl.ScriptedBackend(lambda _: "end")
    states += [program.run(index, stream=True, backend=scripted) for index in range(count)]
    started.set()
    assert states[0]["z"] == "end"
    assert [state["z"] for state in states] == ["end"] * count


def test_the_threads_are_bounded_and_go_away() -> None:
    threads = ProgramThreads(limit=3)
    at_once, most, lock, left = 0, 0, threading.Lock(), threading.Semaphore(0)

    def work() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.002)
        with lock:
            at_once -= 1
        left.release()

    jobs = [threads.submit(work) for _ in range(30)]
    for _ in jobs:
        assert left.acquire(timeout=5)
    assert most <= 3
    jobs[0].hurry()  # has run long ago
    until(lambda: not any(thread.name == "palmette-program" for thread in threading.enumerate()))


async def test_1000_coroutines_of_three_calls_at_once() -> None:
    running, most = 0, 0

    async def slowly(prompt: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return "ok"

    @function
    async def program(s, n):
        for call in range(3):
            s += f"{n}" + gen(f"x{call}")
            await s.aget(f"x{call}")

    before = threading.active_count()
    scripted = sgl.ScriptedBackend(slowly)
    states = await asyncio.gather(*(program.arun(n, backend=scripted) for n in range(1000)))
    assert all(state["x2"] == "ok" for state in states)
    assert threading.active_count() - before <= 2
    assert most > 300
    until(lambda: scripted.open_branches == 0)  # they are closed beside what goes on


def test_1000_plain_programs_on_few_threads() -> None:
    async def slowly(prompt: str) -> str:
        await asyncio.sleep(0.001)
        return "ok"

    @function
    def program(s, n):
        for call in range(3):
            s += f"{n}" + gen(f"x{call}")
            s[f"x{call}"]

    scripted = sgl.ScriptedBackend(slowly)
    states = program.run_batch([{"n": n} for n in range(1000)], backend=scripted)
    assert all(state["x2"] == "ok" for state in states)
    assert sum(thread.name.startswith("palmette-program") for thread in threading.enumerate()) <= 64
