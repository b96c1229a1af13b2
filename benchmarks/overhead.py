"""How long the engine works outside the model: receive, plan, commit and emit, a step, with many requests running;
and what it gives to plan each step while the one before runs.

    python -m benchmarks.overhead --running 64
    python -m benchmarks.overhead --overlap

Drives the engine's core itself, without front, HTTP or second thread. Times are the engine's own counters; requests
come and replies go as the engine process has them, as bytes that are decoded and encoded here.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.quiet import wait_until_quiet
from palmette.runtime.config import DEFAULT_MODEL, EngineConfig
from palmette.runtime.engine import build_core
from palmette.runtime.messages.replies import Counters, Failed, Generated, ReplyBatch
from palmette.runtime.messages.requests import Generate, RequestBatch
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import TOKEN_BYTES, pack
from palmette.runtime.scheduler.process import Core


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds a step, and how many steps they are of."""

    steps: int
    receive: float
    plan: float
    commit: float
    emit: float
    model: float
    other: float = 0.0  # of the core's step, in none of its parts

    @property
    def outside(self) -> float:
        return self.receive + self.plan + self.commit + self.emit + self.other

    @property
    def share(self) -> float:
        """Of the step, outside the model."""
        return self.outside / (self.outside + self.model)


def step_times(before: Counters, after: Counters, seconds: float) -> StepTimes:
    """Means of the steps between two readings; `seconds` were spent in them."""
    steps = after.steps - before.steps

    def mean(name: str) -> float:
        spent: float = getattr(after, name) - getattr(before, name)
        return 1e3 * spent / steps

    plan, commit, model = mean("plan_seconds"), mean("commit_seconds"), mean("execute_seconds")
    other = 1e3 * seconds / steps - plan - commit - model
    return StepTimes(steps, mean("receive_seconds"), plan, commit, mean("emit_seconds"), model, other)


@dataclass(frozen=True)
class Overhead:
    """`steady`: means over the measured steps. `median`, `worst`: of single steps, outside the model, ms."""

    running: int
    steady: StepTimes
    median: float
    worst: float


class EndlessRequests:
    """Keeps `running` requests open: one that ends is followed by another. A fifth of them share a prefix."""

    def __init__(self, core: Core, running: int, prompt: int, seed: int) -> None:
        self._core = core
        self._rng = random.Random(seed)
        self._prompt = prompt
        self._shared = self._tokens(prompt // 2)
        self._made = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(RequestBatch)
        self.started: set[str] = set()
        self.tokens = 0
        self.receive_seconds = 0.0  # in decoding; the rest the core counts itself
        self.emit_seconds = 0.0
        self.step_seconds = 0.0
        for _ in range(running):
            self._submit()

    def step(self) -> None:
        """One step of the engine, ended requests replaced."""
        start = time.perf_counter()
        replies = self._core.step()
        stepped = time.perf_counter()
        self._encoder.encode(ReplyBatch(tuple(replies)))
        self.emit_seconds += time.perf_counter() - stepped
        self.step_seconds += stepped - start
        for reply in replies:
            if isinstance(reply, Failed):
                raise RuntimeError(f"A request failed: {reply.error.message}")
            if isinstance(reply, Generated):
                self.started.add(reply.id)
                self.tokens += len(reply.tokens) // TOKEN_BYTES
                if reply.finish is not None:
                    self._submit()

    def _submit(self) -> None:
        self._made += 1
        own = self._tokens(self._prompt)
        prompt = self._shared + own[len(self._shared) :] if self._made % 5 == 0 else own
        params = SamplingParams(max_tokens=self._rng.randint(32, 96), temperature=0, ignore_eos=True)
        sent = self._encoder.encode(RequestBatch((Generate(id=str(self._made), prompt=pack(prompt), params=params),)))
        start = time.perf_counter()
        requests = self._decoder.decode(sent).requests
        self.receive_seconds += time.perf_counter() - start
        for request in requests:
            self._core.submit(request)

    def counters(self) -> Counters:
        """The core's, and what is counted here."""
        core = self._core.counters()
        received = core.receive_seconds + self.receive_seconds
        return msgspec.structs.replace(core, receive_seconds=received, emit_seconds=self.emit_seconds)

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
    before = last = requests.counters()
    begun = seconds = requests.step_seconds
    outside: list[float] = []
    for _ in range(steps):
        requests.step()
        now, spent = requests.counters(), requests.step_seconds
        outside.append(step_times(last, now, spent - seconds).outside)
        last, seconds = now, spent
    return Overhead(running, step_times(before, last, seconds - begun), statistics.median(outside), max(outside))


@dataclass(frozen=True)
class Rates:
    """Output tokens a second, one entry a round."""

    running: int
    plain: tuple[float, ...]
    overlapped: tuple[float, ...]

    @property
    def gain(self) -> float:
        """Median of the ratios of neighbouring rounds."""
        return statistics.median(ahead / plain for ahead, plain in zip(self.overlapped, self.plain, strict=True))


def measure_overlap(
    config: EngineConfig, *, running: int, prompt: int = 64, rounds: int = 5, seconds: float = 3.0
) -> Rates:
    """Two engines in this process, without and with overlap, take turns."""
    engines = [
        EndlessRequests(build_core(msgspec.structs.replace(config, overlap=overlap)), running, prompt, seed=1)
        for overlap in (False, True)
    ]
    for engine in engines:
        while len(engine.started) < running:
            engine.step()
    rates: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for which in ((0, 1), (1, 0))[turn % 2]:
            rates[which].append(_rate(engines[which], seconds))
    return Rates(running, tuple(rates[0]), tuple(rates[1]))


def _rate(engine: EndlessRequests, seconds: float) -> float:
    tokens, start = engine.tokens, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        engine.step()
    return (engine.tokens - tokens) / spent


def show_overlap(model: str, all_rates: Sequence[Rates]) -> Table:
    table = Table("running", "plain", "overlapped", "gain", title=f"{model}, output tokens/s, median (least to most)")
    for rates in all_rates:
        table.add_row(str(rates.running), _spread(rates.plain), _spread(rates.overlapped), f"{rates.gain:.3f}")
    return table


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--overlap", action="store_true", help="compare tokens/s at 1, 16 and --running")
    parser.add_argument("--patience", type=float, default=120, help="seconds to wait for a quiet machine")
    arguments = parser.parse_args()
    load = wait_until_quiet(timeout=arguments.patience)
    if arguments.overlap:
        counts = sorted({1, 16, arguments.running})
        config = EngineConfig(model=arguments.model, threads=arguments.threads, max_running=arguments.running)
        rates = [measure_overlap(config, running=count, prompt=arguments.prompt) for count in counts]
        Console().print(show_overlap(arguments.model, rates))
        Console().print_json(json.dumps({"busy before": load.busy, "rates": [asdict(each) for each in rates]}))
        return
    config = EngineConfig(model=arguments.model, threads=arguments.threads, max_running=arguments.running)
    overhead = measure_overhead(config, running=arguments.running, prompt=arguments.prompt, steps=arguments.steps)
    steady = overhead.steady
    table = Table(title=f"{arguments.model}, {overhead.running} running, milliseconds a step")
    for column, value in {
        "receive": steady.receive,
        "plan": steady.plan,
        "commit": steady.commit,
        "emit": steady.emit,
        "other": steady.other,
        "outside the model": steady.outside,
        "median": overhead.median,
        "worst": overhead.worst,
        "model": steady.model,
        "share, %": 100 * steady.share,
    }.items():
        table.add_column(column, footer=f"{value:.3f}", justify="right")
    table.show_footer = True
    console = Console()
    console.print(table)
    console.print_json(json.dumps({"busy before": load.busy, **asdict(overhead)}))


if __name__ == "__main__":
    main()
