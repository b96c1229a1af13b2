"""Compiled programs against interpreted ones where the cache is small: tree of thought, agents with tool waits, judge.

    python -m benchmarks.compiled [--real] [--programs 48] [--wait 0.5] [--only agents]

The pool holds `--pool` of the workload's distinct tokens (at least the longest request), and all programs are there at
once. Runs of the same programs with the same seeds: interpreted, in order of arrival under LRU (nothing is known of
programs); interpreted under LRU in the default order, which goes by cached prefixes and finds programs by their calls;
interpreted by default; compiled. Told of each: the share of prompt tokens that weren't computed (what was computed
ahead or again counts), what the optimum that knows the future (Belady) would have hit on the requests in that order,
and programs a second. All runs must write the same. In virtual time (compiled_virtual.py), without noise; `--real`:
with the model, in this process.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

import palmette as pt
from benchmarks import compiled_virtual
from benchmarks.compiled_programs import Workload, workloads
from palmette.radix_cache.belady import belady_hits, infinite_hits
from palmette.runtime.config import EngineConfig
from palmette.runtime.messages.replies import Generated
from palmette.runtime.messages.requests import Generate, Score
from palmette.runtime.messages.tokens import unpack

LARGE = 1 << 18  # tokens: nothing is evicted


@dataclass(frozen=True)
class Way:
    name: str
    eviction: str
    policy: str
    compiled: bool


WAYS = (
    Way("interpreted, in order of arrival, LRU", "lru", "first_come", False),
    Way("interpreted, default order, LRU", "lru", "longest_prefix", False),
    Way("interpreted, default", "program", "longest_prefix", False),
    Way("compiled", "program", "longest_prefix", True),
)


@dataclass(frozen=True)
class Run:
    """`paths`: tokens of all requests, in order of execution; `spared`: those of choices that nobody has to compute."""

    seconds: float
    prompt_tokens: int
    computed: int
    paths: list[list[int]]
    spared: int
    outputs: list[str]


Runner = Callable[[Workload, Way, int], Run]


def virtual(options: argparse.Namespace) -> Runner:
    def run(workload: Workload, way: Way, pool: int) -> Run:
        config = EngineConfig(max_running=options.running, eviction=way.eviction, policy=way.policy)  # type: ignore[arg-type]
        found = compiled_virtual.run(
            workload, config, compiled_virtual.cpu(), pool, compiled=way.compiled, at_once=options.programs
        )
        asked = found.asked
        return Run(found.seconds, asked.prompt_tokens, asked.computed, asked.paths, asked.spared, found.outputs)

    return run


def real(options: argparse.Namespace) -> Runner:
    def run(workload: Workload, way: Way, pool: int) -> Run:
        with pt.Engine(
            model=options.model, kv_tokens=pool, eviction=way.eviction, policy=way.policy, max_running=options.running
        ) as engine:
            asked = compiled_virtual.Asked()
            paths = _tap(engine, asked)
            deliver = engine.frontend._calls.deliver

            def heard(replies: Any) -> None:
                asked.note(replies)
                deliver(replies)

            engine.frontend._calls.deliver = heard  # type: ignore[method-assign]
            program = workload.program.compile() if way.compiled else workload.program
            begun = time.monotonic()
            states = program.run_batch(workload.arguments, backend=engine, seed=1, num_threads=options.programs)
            outputs = [state.text() for state in states]
            seconds = time.monotonic() - begun
            return Run(seconds, asked.prompt_tokens, asked.computed, paths(), asked.spared, outputs)

    return run


def _tap(engine: pt.Engine, asked: compiled_virtual.Asked) -> Callable[[], list[list[int]]]:
    """Hears what the engine is asked, and how long each waited; gives the tokens of all, in order of execution."""
    calls, found, started = engine.frontend._calls, dict[str, list[list[int]]](), dict[str, float]()
    opened, delivered = calls.open, calls.deliver

    def open_(request: Any) -> Any:
        if isinstance(request, Generate) and not compiled_virtual.is_ahead(request):
            found[request.id] = [list(unpack(request.prompt))]
        elif isinstance(request, Score):
            stems = compiled_virtual.choices_of(request).stems
            found[request.id] = [list(unpack(request.prefix + stem)) for stem, _ in stems]
            asked.spared += compiled_virtual.spared_by(request)
        started[request.id] = time.monotonic()
        return opened(request)

    def deliver(replies: Any) -> None:
        for reply in replies:
            if isinstance(reply, Generated) and reply.id in found:
                found[reply.id][0] += unpack(reply.tokens)
                if reply.finish is not None:
                    started[reply.id] += reply.finish.usage.queue_seconds
        delivered(replies)

    calls.open, calls.deliver = open_, deliver  # type: ignore[method-assign]
    return lambda: [path for name in sorted(found, key=lambda each: started[each]) for path in found[name]]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="with the model, on this machine")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--programs", type=int, default=48, help="of each workload, all there at once")
    parser.add_argument("--running", type=int, default=16, help="requests that run at once")
    parser.add_argument("--pool", type=float, default=0.1, help="share of the distinct tokens that the cache holds")
    parser.add_argument("--scale", type=float, default=1.0, help="of the texts' lengths")
    parser.add_argument("--wait", type=float, default=0.5, help="seconds that a tool takes, in the mean")
    parser.add_argument("--only", default="", help="workloads whose name has this in it")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    console = Console(width=150)
    runner = real(options) if options.real else virtual(options)
    for workload in workloads(options.programs, options.scale, options.wait, options.seed):
        if options.only in workload.name:
            console.print(compare(workload, runner, options, console))


def compare(workload: Workload, runner: Runner, options: argparse.Namespace, console: Console) -> Table:
    """A row for each way. The pool is a share of what the programs hold together where nothing is evicted."""
    whole = runner(workload, WAYS[1], LARGE)
    distinct = sum(map(len, whole.paths)) - infinite_hits(whole.paths)
    pool = max(round(options.pool * distinct), max(map(len, whole.paths)) + 64)
    title = (
        f"{workload.name}: {options.programs} programs, {whole.prompt_tokens:,} prompt tokens, a pool of {pool:,}"
        f" ({pool / distinct:.0%}); without eviction {1 - whole.computed / whole.prompt_tokens:.3f}"
    )
    table = Table("run", "hit rate", "Belady", "programs/s", "seconds", title=title, title_justify="left")
    known = {way: runner(workload, way, pool) for way in WAYS}
    for way, found in known.items():
        if found.outputs != whole.outputs:
            console.print(f"[red]{workload.name}, {way.name}: other outputs than with a large pool[/red]")
            sys.exit(1)
        hit = {each: 1 - run.computed / whole.prompt_tokens for each, run in known.items()}
        first = WAYS[0]
        table.add_row(
            way.name,
            f"{hit[way]:.3f} ({hit[way] / hit[first]:.2f}×)",
            f"{(belady_hits(found.paths, pool) + found.spared) / whole.prompt_tokens:.3f}",
            f"{options.programs / found.seconds:.2f} ({known[first].seconds / found.seconds:.2f}×)",
            f"{found.seconds:.1f}",
        )
    return table


if __name__ == "__main__":
    main()
