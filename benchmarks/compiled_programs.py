"""Three kinds of programs that call a model many times, as benchmarks run them: compiled, and as they are.

Coroutines, so that many of them run in one thread, also in virtual time. Used by compiled.py and compiled_virtual.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import palmette as pt
from palmette.lang.compiling.tracing import TracingState

WORDS = """
    river stone winter letter garden engine market silver quiet yellow window harbour morning paper bridge forest number
    little answer second moment carry follow listen measure wonder travel gather promise remember
"""
GEN: dict[str, Any] = {"ignore_eos": True, "temperature": 0.8}


@dataclass(frozen=True)
class Workload:
    """`arguments`: of each run of `program`. `calls`: of the model, of each."""

    name: str
    program: Any
    arguments: list[dict[str, Any]]


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS.split(), k=count))


@pt.function
async def tree_of_thought(s: Any, shots: str, puzzle: str, width: int, depth: int) -> None:
    """Each level: ideas side by side, each judged, all of them shown, the best one taken on."""
    s += "Solve the puzzle step by step.\n" + shots + "\nPuzzle: " + puzzle + "\n"
    for level in range(depth):
        forks = s.fork(width)
        for number, fork in enumerate(forks):
            fork += f"Idea {level}.{number}: " + pt.gen("idea", max_tokens=24, **GEN)
            fork += "\nIs it good? " + pt.gen("verdict", max_tokens=8, **GEN)
        for number, fork in enumerate(forks):
            s += f"\nIdea {number}: " + await fork.aget("idea") + "\nVerdict: " + await fork.aget("verdict")
        s += "\nBest: " + pt.gen(f"best{level}", max_tokens=12, **GEN) + "\n"


def tool(seconds: float) -> Callable[[str], Any]:
    """A tool that takes about so long and tells as much as it was asked."""

    async def look_up(what: str) -> str:
        rng = random.Random(what)
        await asyncio.sleep(seconds * rng.uniform(0.5, 1.5))
        return words(rng, 40)

    return look_up


async def use(s: Any, name: str, function: Callable[[str], Any], what: Any, seconds: float) -> None:
    """`s[name]` becomes what the function gives: beside the program where that is compiled, else awaited here."""
    if isinstance(s, TracingState):
        s.call(name, function, what, seconds=seconds)
    else:
        s[name] = await function(what)


@pt.function
async def agent(s: Any, manual: str, task: str, steps: int, wait: float) -> None:
    """Thought, action, and what a tool finds, again and again; then an answer."""
    look_up = tool(wait)
    s += manual + "\nTask: " + task
    for step in range(steps):
        s += f"\nThought {step}: " + pt.gen(f"thought{step}", max_tokens=16, **GEN)
        s += "\nAction: " + pt.gen(f"action{step}", max_tokens=8, **GEN)
        await use(s, f"found{step}", look_up, await s.aget(f"action{step}"), wait)
        s += "\nResult: " + await s.aget(f"found{step}")
    s += "\nAnswer: " + pt.gen("answer", max_tokens=16, **GEN)


@pt.function
async def judge(s: Any, rules: str, essay: str, dimensions: int) -> None:
    """Notes on an essay, side by side, one a dimension; all of them are read before the grade."""
    s += rules + "\nEssay: " + essay
    forks = s.fork(dimensions)
    for number, fork in enumerate(forks):
        fork += f"\nDimension {number}: " + pt.gen("note", max_tokens=12 + 6 * number, **GEN)
    for number, fork in enumerate(forks):
        s += f"\nNote {number}: " + await fork.aget("note")
    s += "\nGrade: " + pt.select("grade", ["A", "B", "C", "D"])
    s += "\nBecause " + pt.gen("because", max_tokens=24, **GEN)


def workloads(programs: int, scale: float, wait: float, seed: int) -> list[Workload]:
    """`scale` stretches the texts; the groups share their beginnings and come shuffled."""
    rng = random.Random(seed)

    def size(count: int) -> int:
        return max(4, round(count * scale))

    shots = words(rng, size(100))
    manuals = [words(rng, size(200)) for _ in range(3)]
    rules = [words(rng, size(150)) for _ in range(3)]
    every = [
        Workload(
            "tree of thought",
            tree_of_thought,
            [{"shots": shots, "puzzle": words(rng, size(100)), "width": 3, "depth": 3} for each in range(programs)],
        ),
        Workload(
            "agents with tool waits",
            agent,
            [
                {"manual": manuals[each % 3], "task": words(rng, size(30)), "steps": 5, "wait": wait}
                for each in range(programs)
            ],
        ),
        Workload(
            "judge",
            judge,
            [{"rules": rules[each % 3], "essay": words(rng, size(240)), "dimensions": 5} for each in range(programs)],
        ),
    ]
    for workload in every:
        rng.shuffle(workload.arguments)
    return every
