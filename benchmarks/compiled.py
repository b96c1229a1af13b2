"""Compiled programs against interpreted ones where the cache is small: tree of thought, agents with tool waits, judge.

    python -m benchmarks.compiled [--model tiny --programs 8]

The pool holds `--pool` of the workload's distinct tokens. Three engines run the same programs with the same seeds:
interpreted under LRU (which knows nothing of programs), interpreted under the default policy without hints, and
compiled under the default policy, which hears the executor's hints. Told of each: the share of prompt tokens that came
from the cache, what the optimum that knows the future (Belady) would have hit on the very requests of that run, and
programs a second of wall and of CPU time. Outputs are compared: all three runs must write the same.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

import palmette as pt
from palmette.radix_cache.belady import belady_hits, infinite_hits
from palmette.runtime.link import HEARTBEAT_SECONDS
from palmette.runtime.messages.tokens import unpack

WORDS = """
    river stone winter letter garden engine market silver quiet yellow window harbour morning paper bridge forest number
    little answer second moment carry follow listen measure wonder travel gather promise remember
"""
GEN: dict[str, Any] = {"ignore_eos": True, "temperature": 0.8}


@dataclass(frozen=True)
class Workload:
    name: str
    program: Any
    arguments: list[dict[str, Any]]


@dataclass
class Requests:
    """What an engine was asked, in order: whole token paths, outputs included where they were generated."""

    generations: list[tuple[bytes, Any]] = field(default_factory=list)

    def paths(self) -> list[list[int]]:
        paths = []
        for prompt, generation in self.generations:
            output = [] if generation is None else list(generation.output.handed_out()[0])
            paths.append([*unpack(prompt), *output])
        return paths


@dataclass(frozen=True)
class Outcome:
    texts: list[str]
    wall: float
    cpu: float
    prompt_tokens: int
    cached_tokens: int
    paths: list[list[int]]

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS.split(), k=count))


@pt.function
def tree_of_thought(s: Any, puzzle: str, width: int, depth: int) -> None:
    s += "Solve the puzzle step by step.\n" + puzzle + "\n"
    for level in range(depth):
        forks = s.fork(width)
        for number, fork in enumerate(forks):
            fork += f"Idea {level}.{number}: " + pt.gen("idea", max_tokens=24, **GEN)
            fork += "\nIs it good? " + pt.gen("verdict", max_tokens=8, **GEN)
        for number, fork in enumerate(forks):
            s += f"\nIdea {number}: " + fork["idea"] + "\nVerdict: " + fork["verdict"]
        s += "\nBest: " + pt.gen(f"best{level}", max_tokens=12, **GEN) + "\n"


def tool(seconds: float) -> Callable[[str], str]:
    """A tool that takes so long and tells as much as it was asked."""

    def look_up(what: str) -> str:
        time.sleep(seconds)
        return words(random.Random(what), 24)

    return look_up


@pt.function
def agent(s: Any, manual: str, task: str, steps: int, wait: float) -> None:
    look_up = tool(wait)
    s += manual + "\nTask: " + task
    for step in range(steps):
        s += f"\nThought {step}: " + pt.gen("thought", max_tokens=16, **GEN)
        s += "\nAction: " + pt.gen("action", max_tokens=8, **GEN)
        s.call(f"found{step}", look_up, s["action"], seconds=wait)
        s += "\nResult: " + s[f"found{step}"]
    s += "\nAnswer: " + pt.gen("answer", max_tokens=16, **GEN)


@pt.function
def judge(s: Any, rules: str, essay: str, dimensions: int) -> None:
    s += rules + "\nEssay: " + essay
    forks = s.fork(dimensions)
    for number, fork in enumerate(forks):
        fork += f"\nDimension {number}: " + pt.gen("note", max_tokens=12 + 6 * number, **GEN)
    for number, fork in enumerate(forks):
        s += f"\nNote {number}: " + fork["note"]
    s += "\nGrade: " + pt.select("grade", ["A", "B", "C", "D"])


def workloads(programs: int, scale: float, wait: float, seed: int) -> list[Workload]:
    """`scale` stretches the texts; the groups share their beginnings and come shuffled."""
    rng = random.Random(seed)

    def size(count: int) -> int:
        return max(4, round(count * scale))

    puzzles = [words(rng, size(120)) for _ in range(max(1, programs // 2))]
    manuals = [words(rng, size(200)) for _ in range(3)]
    rules = [words(rng, size(150)) for _ in range(3)]
    every = [
        Workload(
            "tree of thought",
            tree_of_thought,
            [{"puzzle": puzzles[each % len(puzzles)], "width": 3, "depth": 2} for each in range(programs)],
        ),
        Workload(
            "agents with tool waits",
            agent,
            [
                {"manual": manuals[each % 3], "task": words(rng, size(20)), "steps": 3, "wait": wait}
                for each in range(programs)
            ],
        ),
        Workload(
            "judge",
            judge,
            [{"rules": rules[each % 3], "essay": words(rng, size(160)), "dimensions": 4} for each in range(programs)],
        ),
    ]
    for workload in every:
        rng.shuffle(workload.arguments)
    return every


def run(workload: Workload, model: str, kv_tokens: int, eviction: str, compiled: bool, at_once: int) -> Outcome:
    """All programs of a workload on a fresh engine."""
    with pt.Engine(model=model, kv_tokens=kv_tokens, eviction=eviction) as engine:
        requests = tap(engine)
        program = workload.program.compile() if compiled else workload.program
        wall, cpu = time.monotonic(), time.process_time()
        states = program.run_batch(workload.arguments, backend=engine, seed=1, num_threads=at_once)
        texts = [state.text() for state in states]
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        time.sleep(1.5 * HEARTBEAT_SECONDS)  # then the counters have been told
        counters = engine.frontend.counters
        return Outcome(texts, wall, cpu, counters.prompt_tokens, counters.cached_tokens, requests.paths())


def tap(engine: pt.Engine) -> Requests:
    """Hear what the engine's frontend is asked. Prompts that are only computed ahead are part of it."""
    requests, frontend = Requests(), engine.frontend
    submit, score = frontend.submit_packed, frontend.scores.score_tokens

    def submit_packed(prompt: bytes, params: Any, **options: Any) -> Any:
        generation = submit(prompt, params, **options)
        requests.generations.append((prompt, generation))
        return generation

    async def score_tokens(prefix: bytes, continuations: Any, **options: Any) -> Any:
        requests.generations += [(prefix + each, None) for each in continuations]
        return await score(prefix, continuations, **options)

    frontend.submit_packed = submit_packed  # type: ignore[method-assign]
    frontend.scores.score_tokens = score_tokens  # type: ignore[method-assign]
    return requests


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--programs", type=int, default=24, help="of each workload")
    parser.add_argument("--at-once", type=int, default=8, help="programs that run at once")
    parser.add_argument("--pool", type=float, default=0.1, help="share of the distinct tokens that the cache holds")
    parser.add_argument("--scale", type=float, default=1.0, help="of the texts' lengths")
    parser.add_argument("--wait", type=float, default=0.5, help="seconds that a tool takes")
    parser.add_argument("--only", default="", help="workloads whose name has this in it")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    console = Console()
    table = Table("workload", "run", "pool", "hit rate", "Belady", "vs LRU", "programs/s", "programs/CPU s", "wall s")
    for workload in workloads(options.programs, options.scale, options.wait, options.seed):
        if options.only not in workload.name:
            continue
        whole = run(workload, options.model, 1 << 17, "lru", False, options.at_once)
        distinct = sum(map(len, whole.paths)) - infinite_hits(whole.paths)
        longest = max(map(len, whole.paths))
        pool = max(round(options.pool * distinct), 2 * longest)
        lru: Outcome | None = None
        for name, eviction, compiled in (
            ("interpreted, LRU", "lru", False),
            ("interpreted, learned", "program", False),
            ("compiled", "program", True),
        ):
            outcome = run(workload, options.model, pool, eviction, compiled, options.at_once)
            lru = lru or outcome
            if outcome.texts != whole.texts:
                console.print(f"[red]{workload.name}, {name}: other outputs than with a large pool[/red]")
                sys.exit(1)
            ideal = belady_hits(outcome.paths, pool) / max(1, outcome.prompt_tokens)
            table.add_row(
                workload.name,
                name,
                f"{pool} ({pool / distinct:.0%})",
                f"{outcome.hit_rate:.3f}",
                f"{ideal:.3f}",
                f"{outcome.hit_rate / lru.hit_rate:.2f}×" if lru.hit_rate else "–",
                f"{len(outcome.texts) / outcome.wall:.2f} ({lru.wall / outcome.wall:.2f}×)",
                f"{len(outcome.texts) / outcome.cpu:.2f} ({lru.cpu / outcome.cpu:.2f}×)",
                f"{outcome.wall:.1f}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
