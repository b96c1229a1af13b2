"""Compares systems on the workloads, interleaved run by run, and writes what came out.

    python -m benchmarks.run --against palmette,llama-cpp,vllm --workloads distinct,shared --out FILE.json

The first system of `--against` is the one that the ratios are about. Writes FILE.json and FILE.svg, prints a
table.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shlex
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.arguments import names_of
from benchmarks.costs import Costs, ModelShape, costs
from benchmarks.drivers.protocol import Driver, DriverError
from benchmarks.limits import Limits, measure_limits
from benchmarks.loop import run_workload
from benchmarks.model import LocalModel, open_model
from benchmarks.peers import SYSTEMS
from benchmarks.peers.base import ROOT, PeerError, Setup, System
from benchmarks.quiet import machine, sample_load, wait_until_quiet
from benchmarks.report import Measurement, plot, summarise, table
from benchmarks.text import load_corpus
from benchmarks.workloads import BUILDERS, Workload, build

DATA = ROOT.parent / "shared" / "data"
TABLE_WIDTH = 128  # also where output goes into a log


async def compare(
    drivers: Sequence[Driver],
    rounds: Sequence[Sequence[Workload]],
    console: Console,
    *,
    quiet_timeout: float = 120,
    limit: float | None = None,
) -> list[Measurement]:
    """Round r runs each of its workloads on each driver in turn, starting with another driver every round."""
    measurements: list[Measurement] = []
    for run, workloads in enumerate(rounds):
        for workload in workloads:
            for turn in range(len(drivers)):
                driver = drivers[(turn + run) % len(drivers)]
                measurement = await _measure(driver, workload, run, quiet_timeout, limit)
                measurements.append(measurement)
                told = f"run {run + 1}  {workload.name:14} {driver.name:16} {measurement.result}"
                console.print(told, highlight=False)
    order = {driver.name: index for index, driver in enumerate(drivers)}
    return sorted(measurements, key=lambda measurement: (measurement.run, order[measurement.system]))


async def _measure(
    driver: Driver, workload: Workload, run: int, quiet_timeout: float, limit: float | None
) -> Measurement:
    before = await asyncio.to_thread(wait_until_quiet, timeout=quiet_timeout)
    outcome, error = None, None
    try:
        outcome = await run_workload(workload, driver, limit=limit)
    except (DriverError, ValueError) as failure:
        error = str(failure)
    return Measurement(driver.name, workload.name, run, outcome, error, before, sample_load(0.1))


async def run_comparison(
    systems: Sequence[System], model: LocalModel, arguments: argparse.Namespace, console: Console
) -> dict[str, object]:
    """Everything between the arguments and the written result."""
    corpus = load_corpus(arguments.data if arguments.data.is_dir() else None)
    rounds = [
        build(arguments.workloads, corpus, model.encode, seed, shrink=arguments.shrink)
        for seed in range(arguments.seed, arguments.seed + arguments.runs)
    ]
    limits = measure_limits(arguments.threads, seconds=0.5)
    setup = Setup(model.path, arguments.threads, ROOT / ".cache" / "benchmarks", model.encode)
    async with contextlib.AsyncExitStack() as stack:
        drivers: list[Driver] = []
        for system in systems:
            console.print(f"starting {system.name} …")
            drivers.append(await stack.enter_async_context(system.start(setup)))
        measurements = await compare(
            drivers, rounds, console, quiet_timeout=arguments.quiet_timeout, limit=arguments.limit
        )
    summaries = summarise(measurements)
    work = _costs(rounds[0], model.shape, measurements)
    title = f"{model.name}, {arguments.threads} threads, text: {corpus.source}"
    console.print(table(summaries, title=title, limits=_limit_headlines(rounds[0], work, limits)))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".svg").write_text(plot(summaries, title=title), encoding="utf-8")
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.run", *sys.argv[1:]]),
        "machine": machine(),
        "limits": asdict(limits),
        "model": {"name": model.name, **asdict(model.shape)},
        "text": corpus.source,
        "shrink": arguments.shrink,
        "threads": arguments.threads,
        "systems": {system.name: system.versions() for system in systems},
        "costs": {name: asdict(cost) for name, cost in work.items()},
        "summaries": [asdict(summary) for summary in summaries],
        "measurements": [asdict(measurement) for measurement in measurements],
    }


def _costs(workloads: Sequence[Workload], shape: ModelShape, measurements: Sequence[Measurement]) -> dict[str, Costs]:
    """Of the first run that came through; later runs have other tokens and the same lengths."""
    done = {m.workload: m.outcome for m in reversed(measurements) if m.outcome is not None}
    return {
        workload.name: costs(workload, shape, done[workload.name].reuse)
        for workload in workloads
        if workload.name in done and not any(call.schema for call in workload.calls)  # those end when they like
    }


def _limit_headlines(workloads: Sequence[Workload], work: dict[str, Costs], limits: Limits) -> dict[str, float]:
    """The best possible headline of each workload at the measured limits."""
    best: dict[str, float] = {}
    for workload in workloads:
        if (cost := work.get(workload.name)) is None:
            continue
        rates = (limits.bandwidth, limits.matrix_rate)
        match workload.headline:
            case "seconds":
                best[workload.name] = cost.seconds(*rates)
            case "first token ms":
                best[workload.name] = 1e3 * cost.prefill_seconds(*rates) / len(workload.calls)
            case "decode tokens/s":
                best[workload.name] = cost.decode_tokens / cost.decode_seconds(*rates)
            case "prefill tokens/s":
                best[workload.name] = statistics.fmean(workload.prompt_lengths) / cost.prefill_seconds(*rates)
    return best


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description="Compares systems on the workloads, interleaved run by run.",
    )
    names = ",".join(BUILDERS)
    parser.add_argument("--workloads", type=names_of(BUILDERS), default=names, help=f"default: {names}")
    parser.add_argument("--against", type=names_of(SYSTEMS), default="palmette", help=f"of {','.join(SYSTEMS)}")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--model", default=None, help="a catalogue name or a .gguf file (default: the default model)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, default=DATA, help="GSM8K, MT-bench, HotpotQA; else text is generated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shrink", type=int, default=1, help="divides lengths and counts, for smoke tests")
    parser.add_argument("--quiet-timeout", type=float, default=120, help="seconds to wait for a quiet machine")
    parser.add_argument(
        "--limit", type=float, help="seconds after which a run's open calls are given up, ended ones told"
    )
    parser.add_argument("--install", action="store_true", help="install missing peers into .venvs/")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "benchmarks" / "latest.json")
    return parser.parse_args(argv)


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are ended on the way out
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    systems = [SYSTEMS[name] for name in arguments.against]
    try:
        for system in systems:
            if arguments.install:
                system.install()
            elif not system.installed():
                raise PeerError(f"{system.name} isn't installed. Add --install.")
        result = asyncio.run(run_comparison(systems, open_model(arguments.model), arguments, console))
    except PeerError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"written: {arguments.out} and {arguments.out.with_suffix('.svg').name}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
