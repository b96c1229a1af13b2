"""How long the engine works outside the model: receive, plan, commit and emit, a step, with many requests
running.

    python -m benchmarks.overhead --running 64

Drives the engine's core itself, without front, HTTP or second thread; times are the engine's own counters.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.quiet import wait_until_quiet
from palmette.runtime.config import DEFAULT_MODEL, EngineConfig
from palmette.runtime.engine import build_core
from palmette.runtime.messages.replies import Counters, Failed, Generated
from palmette.runtime.messages.requests import Generate
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.core import EngineCore


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds a step, and how many steps they are of."""

    steps: int
    receive: float
    plan: float
    commit: float
    emit: float
    model: float

    @property
    def outside(self) -> float:
        return self.receive + self.plan + self.commit + self.emit


def step_times(before: Counters, after: Counters) -> StepTimes:
    """Means of the steps between two readings."""
    steps = after.steps - before.steps

    def mean(name: str) -> float:
        spent: float = getattr(after, name) - getattr(before, name)
        return 1e3 * spent / steps

    return StepTimes(
        steps,
        mean("receive_seconds"),
        mean("plan_seconds"),
        mean("commit_seconds"),
        mean("emit_seconds"),
        mean("execute_seconds"),
    )


@dataclass(frozen=True)
class Overhead:
    """`steady`: means over the measured steps. `median`, `worst`: of single steps, outside the model, ms."""

    running: int
    steady: StepTimes
    median: float
    worst: float


class EndlessRequests:
    """Keeps `running` requests open: one that ends is followed by another. A fifth of them share a prefix."""

    def __init__(self, core: EngineCore, running: int, prompt: int, seed: int) -> None:
        self._core = core
        self._rng = random.Random(seed)
        self._prompt = prompt
        self._shared = self._tokens(prompt // 2)
        self._made = 0
        self.started: set[str] = set()
        for _ in range(running):
            self._submit()

    def step(self) -> None:
        """One step of the engine, ended requests replaced."""
        replies = self._core.step()
        for reply in replies:
            if isinstance(reply, Failed):
                raise RuntimeError(f"A request failed: {reply.error.message}")
            if isinstance(reply, Generated):
                self.started.add(reply.id)
                if reply.finish is not None:
                    self._submit()

    def _submit(self) -> None:
        self._made += 1
        own = self._tokens(self._prompt)
        prompt = self._shared + own[len(self._shared) :] if self._made % 5 == 0 else own
        params = SamplingParams(max_tokens=self._rng.randint(32, 96), temperature=0, ignore_eos=True)
        self._core.submit(Generate(id=str(self._made), prompt=pack(prompt), params=params))

    def _tokens(self, count: int) -> list[int]:
        return self._rng.choices(range(100, 250), k=count)


def measure_overhead(
    config: EngineConfig, *, running: int = 64, prompt: int = 64, steps: int = 200, seed: int = 1
) -> Overhead:
    """Runs `steps` steps once `running` requests have had their first tokens; prefills and decodes mixed."""
    core = build_core(config)
    requests = EndlessRequests(core, running, prompt, seed)
    while len(requests.started) < running:
        requests.step()
    before = last = core.counters()
    outside: list[float] = []
    for _ in range(steps):
        requests.step()
        now = core.counters()
        outside.append(step_times(last, now).outside)
        last = now
    return Overhead(running, step_times(before, last), statistics.median(outside), max(outside))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    load = wait_until_quiet()
    config = EngineConfig(model=arguments.model, threads=arguments.threads, max_running=arguments.running)
    overhead = measure_overhead(config, running=arguments.running, prompt=arguments.prompt, steps=arguments.steps)
    steady = overhead.steady
    table = Table(title=f"{arguments.model}, {overhead.running} running, milliseconds a step")
    for column, value in {
        "receive": steady.receive,
        "plan": steady.plan,
        "commit": steady.commit,
        "emit": steady.emit,
        "outside the model": steady.outside,
        "median": overhead.median,
        "worst": overhead.worst,
        "model": steady.model,
    }.items():
        table.add_column(column, footer=f"{value:.3f}", justify="right")
    table.show_footer = True
    console = Console()
    console.print(table)
    console.print_json(json.dumps({"busy before": load.busy, **asdict(overhead)}))


if __name__ == "__main__":
    main()
