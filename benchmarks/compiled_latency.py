"""How long one program takes over HTTP, compiled (one request) and as it is (a request for each of its calls).

    python -m benchmarks.compiled_latency [--runs 12] [--wait 0.05] [--only judge]

One server of this tree on the default model, two threads; one program at a time, in turns, each pair with its own seed
and an empty cache before each run. Both must write the same text. Told: medians, and how often compiled was sooner.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import palmette as pt
from benchmarks.compiled_programs import Workload, workloads
from benchmarks.peers.base import Setup
from benchmarks.peers.ours import PalmetteServer
from benchmarks.quiet import wait_until_quiet
from palmette.runtime.config import DEFAULT_MODEL


def timed(endpoint: pt.RuntimeEndpoint, program: Any, arguments: dict[str, Any], seed: int) -> tuple[float, str]:
    """Seconds from the call to the whole text, and the text."""
    pt.flush_cache(endpoint)
    begun = time.perf_counter()
    text = program.run(**arguments, backend=endpoint, seed=seed).text()
    return time.perf_counter() - begun, text


def measure(endpoint: pt.RuntimeEndpoint, workload: Workload, runs: int, console: Console) -> list[tuple[float, float]]:
    """Seconds of each pair: as it is, compiled. The first pair, new to both, is left out."""
    compiled, pairs = workload.program.compile(), list[tuple[float, float]]()
    for run in range(runs + 1):
        arguments = workload.arguments[run % len(workload.arguments)]
        ways = {False: workload.program, True: compiled}
        order = (False, True) if run % 2 else (True, False)
        found = {way: timed(endpoint, ways[way], arguments, seed=run) for way in order}
        if found[False][1] != found[True][1]:
            console.print(f"[red]{workload.name}, run {run}: compiled wrote another text[/red]")
            sys.exit(1)
        if run:
            pairs.append((found[False][0], found[True][0]))
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--scale", type=float, default=1.0, help="of the texts' lengths")
    parser.add_argument("--wait", type=float, default=0.05, help="seconds that a tool takes, in the mean")
    parser.add_argument("--only", default="", help="workloads whose name has this in it")
    options = parser.parse_args()
    console = Console(width=140)
    table = Table("program", "as it is, p50", "compiled, p50", "ratio", "sooner", "busy before")
    with tempfile.TemporaryDirectory() as logs:
        setup = Setup(model=Path(DEFAULT_MODEL), threads=2, logs=Path(logs), encode=lambda text: [])
        with PalmetteServer().serve(setup) as url:
            endpoint = pt.RuntimeEndpoint(url)
            for workload in workloads(options.runs, options.scale, options.wait, seed=1):
                if options.only not in workload.name:
                    continue
                load = wait_until_quiet(timeout=10)
                pairs = measure(endpoint, workload, options.runs, console)
                plain, compiled = (statistics.median(column) for column in zip(*pairs, strict=True))
                table.add_row(
                    workload.name,
                    f"{plain * 1e3:.0f} ms",
                    f"{compiled * 1e3:.0f} ms",
                    f"{plain / compiled:.3f}×",
                    f"{sum(each[1] < each[0] for each in pairs)} of {len(pairs)}",
                    "?" if load.busy is None else f"{load.busy:.0%}",
                )
            endpoint.shutdown()
    console.print(table)


if __name__ == "__main__":
    main()
