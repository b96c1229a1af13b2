"""What jumping ahead saves of a model's work, and what it could save at most: CPU time of one thread, on the core.

    python -m benchmarks.jump_forward [--at-once 16 4 1]

The 16 JSON objects of the harness with and without jumping, so many at a time. Of every step it is noted how many rows,
tokens and logits it computed, and how long; so it is known what the forced tokens cost beside the rows of their steps,
and how fast all would be were they free. CPU time: another program on the machine slows all of it alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.model import open_model
from benchmarks.text import load_corpus
from benchmarks.workloads import Workload, build
from palmette.runtime.config import DEFAULT_MODEL, EngineConfig
from palmette.runtime.engine import build_core
from palmette.runtime.messages.grammar import Jump, constraint
from palmette.runtime.messages.replies import Failed, Generated
from palmette.runtime.messages.requests import FlushCache, Generate
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.plan import StepPlan
from palmette.runtime.scheduler.core import EngineCore

PREFILL = 30  # tokens beyond one a row, from which on a step is of prompts


@dataclass(frozen=True)
class Step:
    rows: int
    tokens: int
    seconds: float

    @property
    def forced(self) -> int:
        """Tokens beside the newest of each row, where no prompt is computed."""
        more = self.tokens - self.rows
        return more if more <= PREFILL else 0


@dataclass
class Pass:
    """All objects once."""

    jump: Jump
    seconds: float = 0.0
    steps: list[Step] = field(default_factory=list)

    @property
    def outside(self) -> float:
        """Seconds beside the model's."""
        return self.seconds - sum(step.seconds for step in self.steps)


@contextmanager
def watched(core: EngineCore, into: list[Step]) -> Iterator[None]:
    worker: Any = core._worker
    forward = worker.forward

    def timed(plan: StepPlan) -> Any:
        begun = time.thread_time()
        made = forward(plan)
        into.append(Step(len(plan.row_slots), len(plan.tokens), time.thread_time() - begun))
        return made

    worker.forward = timed
    try:
        yield
    finally:
        worker.forward = forward


def go_through(core: EngineCore, workload: Workload, jump: Jump, at_once: int) -> Pass:
    core.submit(FlushCache(id="flush"))
    core.step()
    waiting = list(enumerate(workload.calls))
    under_way = 0
    done = Pass(jump)
    begun = time.process_time()
    with watched(core, done.steps):
        while waiting or core.has_work:
            while waiting and under_way < at_once:
                index, call = waiting.pop(0)
                prompt = [token for part in call.parts if isinstance(part, tuple) for token in part]
                wanted = constraint(json_schema=call.schema, jump=jump)
                params = SamplingParams(max_tokens=call.max_tokens, temperature=0, constraint=wanted)
                core.submit(Generate(id=str(index), prompt=pack(prompt), params=params))
                under_way += 1
            for reply in core.step():
                if isinstance(reply, Failed):
                    raise RuntimeError(reply.error.message)
                under_way -= isinstance(reply, Generated) and reply.finish is not None
    done.seconds = time.process_time() - begun
    return done


def told(at_once: int, pairs: list[tuple[Pass, Pass]]) -> str:
    """`pairs`: without and with jumping."""
    plain = defaultdict(list)
    for each in (one for pair in pairs for one in pair):
        for step in each.steps:
            if step.rows == step.tokens:
                plain[step.rows].append(step.seconds)
    rows = sorted(plain)
    medians = [statistics.median(plain[count]) for count in rows]

    def expected(step: Step) -> float:
        return float(np.interp(step.rows, rows, medians))

    def median(values: list[float]) -> str:
        return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"

    costs = [sum(step.seconds - expected(step) for step in on.steps if step.forced) for _, on in pairs]
    prompts = [sum(s.seconds - expected(s) for s in on.steps if s.tokens - s.rows > PREFILL) for _, on in pairs]
    forced = [sum(step.forced for step in on.steps) for _, on in pairs]
    each_ms = [1e3 * cost / max(1, count) for cost, count in zip(costs, forced, strict=True)]
    lines = [
        f"{at_once} at a time, {len(pairs)} runs: median (lowest to highest)",
        f"  seconds without jumping    {median([off.seconds for off, _ in pairs])}",
        f"  seconds with               {median([on.seconds for _, on in pairs])}",
        f"  times as fast              {median([off.seconds / on.seconds for off, on in pairs])}",
        "  were forced tokens free    "
        + median([off.seconds / (on.seconds - cost) for (off, on), cost in zip(pairs, costs, strict=True)]),
        f"  a forced token, ms         {median(each_ms)}",
        f"  of it prompts, s           {median(prompts)}",
        f"  beside the model, s        {median([off.outside for off, _ in pairs])} without, "
        f"{median([on.outside for _, on in pairs])} with",
        f"  steps                      {median([float(len(off.steps)) for off, _ in pairs])} without, "
        f"{median([float(len(on.steps)) for _, on in pairs])} with",
        "  a step of n rows, ms       " + ", ".join(f"{n}: {1e3 * m:.2f}" for n, m in zip(rows, medians, strict=True)),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jump_forward", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--at-once", type=int, nargs="+", default=[16, 4, 1])
    arguments = parser.parse_args()
    core = build_core(EngineConfig(model=DEFAULT_MODEL, threads=1))
    assert isinstance(core, EngineCore)
    local, corpus = open_model(None), load_corpus(None)
    for at_once in arguments.at_once:
        pairs: list[tuple[Pass, Pass]] = []
        for run in range(arguments.runs + 1):  # the first warms up
            (workload,) = build(["json"], corpus, local.encode, run)
            order: tuple[Jump, ...] = ("off", "bytes") if run % 2 else ("bytes", "off")
            passes = {jump: go_through(core, workload, jump, at_once) for jump in order}
            if run:
                pairs.append((passes["off"], passes["bytes"]))
        print(told(at_once, pairs), flush=True)


if __name__ == "__main__":
    main()
