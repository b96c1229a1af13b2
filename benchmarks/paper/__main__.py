"""Runs the paper's workloads as programs of the language and with the plain openai client, in turns.

    python -m benchmarks.paper --against palmette,vllm,llama-cpp --runs 3 --budget 690 --out FILE.json

The first system of `--against` is the one that the ratios are about. FILE.json is written anew after each measurement,
with FILE.svg at the end, so that what was measured before an interruption stays. `--show` prints what one program wrote
on each system, to be read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.arguments import names_of
from benchmarks.model import open_model
from benchmarks.paper.catalogue import PAPER, WARM_UP, WORKLOADS
from benchmarks.paper.material import Draw, Material, load_material
from benchmarks.paper.results import Measurement, chart, goals, summarise, table
from benchmarks.paper.systems import SYSTEMS, RunFailed, Running
from benchmarks.paper.workload import Item, Workload
from benchmarks.peers.base import ROOT, PeerError, Setup
from benchmarks.quiet import Load, machine, sample_load
from benchmarks.report import QUIET

DATA = ROOT.parent / "shared" / "data"
TABLE_WIDTH = 128
SAMPLE_SECONDS = 0.2
RIVALS = ("vllm", "llama-cpp")


@dataclass
class Comparison:
    """What was asked for, and what has been measured."""

    arguments: argparse.Namespace
    material: Material
    console: Console
    facts: dict[str, Any]
    deadline: float = float("inf")  # of time.monotonic
    measurements: list[Measurement] = field(default_factory=list)

    def items(self, workload: Workload, run: int) -> list[Item]:
        """The same for every system of a run, others in the next."""
        rng = random.Random(f"{self.arguments.seed} {run} {workload.name}")
        return workload.items(Draw(self.material, rng, self.arguments.scale))

    async def warm_up(self, system: Running) -> None:
        """What a server prepares at its first request isn't measured."""
        with contextlib.suppress(RunFailed):  # then the measurement says it
            await system.run(WARM_UP, WARM_UP.items(Draw(self.material, random.Random(0))), 60)

    async def measure_all(self, systems: Sequence[Running]) -> None:
        """Round by round, in each the workloads, in each the systems, another one first every round."""
        for run in range(self.arguments.runs):
            for name in self.arguments.workloads:
                workload = WORKLOADS[name]
                items = self.items(workload, run)
                for turn in range(len(systems)):
                    if time.monotonic() > self.deadline:
                        self.console.print(f"The budget of {self.arguments.budget:g} s is spent.")
                        return
                    await self._measure(systems[(turn + run) % len(systems)], workload, items, run)

    async def _measure(self, system: Running, workload: Workload, items: list[Item], run: int) -> None:
        before = await asyncio.to_thread(wait_until_quiet, self.arguments.quiet_timeout)
        outcome, error = None, None
        try:
            outcome = await system.run(workload, items, self.arguments.limit)
        except RunFailed as failure:
            error = str(failure)
        measurement = Measurement(system.name, workload.name, run, outcome, error, before)
        self.measurements.append(measurement)
        self.console.print(f"run {run + 1}  {workload.name:20} {system.name:18}{measurement.told}", highlight=False)
        if self.arguments.show and outcome is not None and outcome.outputs:
            self.console.print_json(json.dumps(outcome.outputs[0]))
        self.write()

    def write(self) -> None:
        summaries = summarise(self.measurements, self.arguments.against)
        result = {
            **self.facts,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "summaries": [asdict(summary) for summary in summaries],
            "measurements": [asdict(measurement) for measurement in self.measurements],
        }
        self.arguments.out.parent.mkdir(parents=True, exist_ok=True)
        self.arguments.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def tell(self) -> None:
        """The table, the means and the chart of what there is."""
        if not self.measurements:
            return
        order = {name: index for index, name in enumerate(self.arguments.workloads)}
        self.measurements.sort(key=lambda each: (order[each.workload], each.run))
        summaries = summarise(self.measurements, self.arguments.against)
        title = f"{self.facts['model']}, {self.arguments.threads} threads, texts: {self.material.source}"
        self.console.print(table(summaries, title=title))
        told = goals(summaries, [name for name in self.arguments.against[1:] if name in RIVALS])
        for name, mean in told.means.items():
            if name != self.arguments.against[0]:
                self.console.print(f"geometric mean against {name}: {mean:.2f}×")
        if told.better is not None:
            short = ", ".join(f"{name} {ratio:.2f}×" for name, ratio in told.short.items())
            self.console.print(f"against the better of the two: {told.better:.2f}×; below 2×: {short or 'none'}")
        drawing = chart(summaries, self.arguments.against, title=f"Throughput beside the first system's, {title}")
        self.arguments.out.with_suffix(".svg").write_text(drawing, encoding="utf-8")
        self.write()


def wait_until_quiet(timeout: float) -> Load:
    """Samples until nobody else uses the machine; after `timeout` seconds a busy sample too is taken, and recorded."""
    deadline = time.monotonic() + timeout
    while True:
        load = sample_load(SAMPLE_SECONDS)
        if load.busy is None or load.busy <= QUIET or time.monotonic() > deadline:
            return load


async def run_comparison(arguments: argparse.Namespace, console: Console) -> None:
    model = open_model(arguments.model)
    setup = Setup(model.path, arguments.threads, ROOT / ".cache" / "benchmarks" / "paper", model.encode)
    facts = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.paper", *sys.argv[1:]]),
        "machine": machine(),
        "model": model.name,
        "threads": arguments.threads,
        "scale": arguments.scale,
        "systems": {name: {"what": SYSTEMS[name].what, **SYSTEMS[name].versions()} for name in arguments.against},
        "titles": {name: WORKLOADS[name].title for name in arguments.workloads},
    }
    material = load_material(arguments.data if arguments.data.is_dir() else None)
    deadline = time.monotonic() + arguments.budget
    comparison = Comparison(arguments, material, console, {**facts, "texts": material.source}, deadline)
    try:
        async with contextlib.AsyncExitStack() as stack:
            systems: list[Running] = []
            for name in arguments.against:
                console.print(f"starting {name} …")
                system = await stack.enter_async_context(SYSTEMS[name].start(setup))
                await comparison.warm_up(system)
                systems.append(system)
            if arguments.pause:
                console.print("ready; a line on the standard input starts the measurements")
                await asyncio.to_thread(sys.stdin.readline)
                comparison.deadline = time.monotonic() + arguments.budget
            await comparison.measure_all(systems)
    finally:
        comparison.tell()


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ",".join(each.name for each in PAPER)
    parser.add_argument("--workloads", type=names_of(WORKLOADS), default=names, help=f"default: {names}")
    parser.add_argument(
        "--against", type=names_of(SYSTEMS), default="palmette,vllm,llama-cpp", help=f"of {','.join(SYSTEMS)}"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", default=None, help="a catalogue name or a .gguf file (default: the default model)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, default=DATA, help="GSM8K, MT-bench, HotpotQA; else text is generated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of programs; 0.01 is the least of each")
    parser.add_argument("--limit", type=float, help="seconds after which the open programs of a run are given up")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which none starts")
    parser.add_argument("--quiet-timeout", type=float, default=60, help="seconds to wait for a quiet machine")
    parser.add_argument("--pause", action="store_true", help="wait for a line of input once the servers are up")
    parser.add_argument("--show", action="store_true", help="print what the first program of each run wrote")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "benchmarks" / "paper.json")
    return parser.parse_args(argv)


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are ended on the way out
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    missing = [name for name in arguments.against if not SYSTEMS[name].installed()]
    if missing:
        console.print(f"[red]{', '.join(missing)} not installed; benchmarks.run --install does it.[/red]")
        return 1
    try:
        asyncio.run(run_comparison(arguments, console))
    except (PeerError, KeyboardInterrupt) as ended:
        console.print(f"[red]{ended or 'interrupted'}[/red]", highlight=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
