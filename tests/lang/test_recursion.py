"""Programs that call themselves: so deep as they like within a bound, and one clear error beyond it."""

from __future__ import annotations

import asyncio
import sys

import pytest
from lang_helpers import line_of

import palmette as sgl
from palmette import ProgramError, function, gen
from palmette.lang.nesting import MOST_NESTED


@function
def bounded(s, depth):
    s += f"{depth} " + gen("x")
    if depth:
        s["below"] = bounded.run(depth - 1)["total"]
    s["total"] = 1 + (s["below"] if depth else 0)


def endless(s, way):
    s += "again " + gen("x")
    if way == "run":
        program.run(way)  # run
    elif way == "call":
        s["y"] = program(way)["x"]
    elif way == "stream":
        program.run(way, stream=True).sync()
    elif way == "batch":
        [state] = program.run_batch([[way]])
        state.sync()
    else:
        program.compile().run(way)


program = function(endless)


def test_a_recursion_with_an_end() -> None:
    assert bounded(20)["total"] == 21


@pytest.mark.parametrize("way", ["run", "call", "stream", "batch"])
def test_one_without_is_told_at_its_line(way: str) -> None:
    with pytest.raises(ProgramError) as caught:
        program.run(way).sync()
    said = str(caught.value)
    assert f"{MOST_NESTED} programs run within each other (… → endless → endless → endless)" in said
    assert "Give it an end" in said
    assert said.count("test_recursion.py") == 1
    if way == "run":
        assert f"test_recursion.py:{line_of(endless, 'run')} in endless: endless.run: " in said


def test_programs_that_call_each_other() -> None:
    @function
    def even(s, n):
        odd.run(n + 1)

    @function
    def odd(s, n):
        even.run(n + 1)

    with pytest.raises(ProgramError, match="→ odd → even → odd → even"):
        even.run(0)


async def test_coroutines() -> None:
    @function
    async def deeper(s, n):
        s += gen("x")
        await deeper.arun(n + 1)

    with pytest.raises(ProgramError, match="programs run within each other"):
        await deeper.arun(0)
    states = await asyncio.gather(*(bounded.arun(0) for _ in range(2 * MOST_NESTED)))
    assert len(states) == 2 * MOST_NESTED, "side by side is not within each other"


def test_compiled() -> None:
    with sgl.Engine(model="tiny", kv_tokens=1024, threads=1) as engine:

        @function
        def again(s):
            s += "a" + gen("x", max_tokens=1)
            again.compile().run(backend=engine)

        with pytest.raises(ProgramError, match="programs run within each other"):
            again.compile().run(backend=engine)
        with pytest.raises(ProgramError, match="programs run within each other"):
            again.trace()


def test_a_plain_function_that_calls_itself() -> None:
    limit = sys.getrecursionlimit()

    def think(s, n):
        s += f"{n}"
        think(s, n + 1)  # here

    @function
    def thinking(s):
        think(s, 0)

    with pytest.raises(ProgramError) as caught:
        thinking.run()
    assert "think() calls itself, or others that call it, too often; there seems to be no end" in str(caught.value)
    assert f"test_recursion.py:{line_of(think, 'here')}" in str(caught.value)
    assert isinstance(caught.value.__context__, RecursionError)
    assert sys.getrecursionlimit() == limit
    [state] = thinking.run_batch([[]])
    assert "calls itself" in str(state.error())
