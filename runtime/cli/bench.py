"""`palmette bench`: what this machine reaches, as a share of what it could reach at best.

An engine in this process does the work; the bounds are the roofline's, with this machine's limits measured just
before. Not a comparison of systems: that is benchmarks/.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palmette.runtime.cli.errors import guarded
from palmette.runtime.cli.kernel_bench import KernelFigure, measure_kernels
from palmette.runtime.cli.models import fetch_model
from palmette.runtime.cli.roofline import figure, seconds, shape_of
from palmette.runtime.cli.this_machine import (
    Machine,
    cpu_name,
    measure_machine,
    sample_load,
    thread_count,
    wide_console,
)
from palmette.runtime.config import EngineConfig
from palmette.runtime.flags import engine_options
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.roofline.bound import decode_bound, prefill_bound
from palmette.runtime.roofline.device import Device
from palmette.runtime.roofline.plot import short
from palmette.runtime.roofline.shape import ModelShape

if TYPE_CHECKING:
    from rich.console import Console

    from palmette.runtime.engine import Engine
    from palmette.runtime.frontend.generation import Output

REPEATS = 3
PATIENCE = 8.0  # seconds: a workload that takes longer isn't begun again


@dataclass(frozen=True)
class Workload:
    """`requests` prompts of `prompt` random tokens each, and `output` tokens behind each."""

    name: str
    requests: int
    prompt: int
    output: int

    @property
    def decodes(self) -> bool:
        return self.output > 1


@dataclass(frozen=True)
class Figure:
    """Tokens a second: of output for decoding, of prompts for prefill. `limit`: the roofline's."""

    workload: str
    context: int  # tokens, in the middle of what was measured
    requests: int
    decodes: bool
    runs: int
    tokens_per_second: float  # median
    low: float
    high: float
    limit: float
    bound_by: str

    @property
    def share(self) -> float:
        return self.tokens_per_second / self.limit


def workloads(context_length: int) -> list[Workload]:
    """The usual ones, shortened where the model's context is shorter."""
    output = min(33, context_length // 2)
    long, brief = min(1024, context_length - output), max(1, min(64, context_length // 4))
    return [
        Workload(f"decode, context {brief}", 1, brief, output),
        Workload(f"decode, context {long:,}", 1, long, output),
        Workload(f"prefill {long:,}", 1, long, 1),
        Workload(f"32 decodes, context {brief}", 32, brief, output),
    ]


@guarded
@engine_options
def bench(
    json_file: Annotated[Path | None, typer.Option("--json", dir_okay=False, help="Write all figures here.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each workload.")] = REPEATS,
    kernels_alone: Annotated[
        bool, typer.Option("--alone/--no-alone", help="Measure the native kernels one by one, too.")
    ] = True,
    *,
    given: dict[str, Any],
) -> None:
    """This machine's speed, as a share of its limits. Under a minute with the default model."""
    from palmette.runtime.engine import KV_FORMATS, Engine

    config = EngineConfig(**given)
    fetch_model(config.model)
    console = wide_console()
    before = sample_load()
    tell(console, "measuring the machine")
    machine = measure_machine(config.threads, lambda words: tell(console, words))
    show_machine(console, machine)
    with Engine(config) as engine:
        ready = engine.ready
        shape = shape_of(config.model, "auto", KV_FORMATS[ready.kv_dtype])
        device = machine.device(shape.weight_bytes)
        context = min(ready.context_length, ready.kv_tokens)
        figures = []
        for workload in workloads(context):
            tell(console, workload.name)
            if workload.requests * (workload.prompt + workload.output) > ready.kv_tokens:
                console.print(f"{workload.name}: left out, for a KV pool of {ready.kv_tokens:,} tokens is not enough.")
            else:
                figures.append(run(engine, workload, shape, device, repeats))
    tell(console, "single kernels")
    alone = measure_kernels(config.model, machine) if kernels_alone and ready.kernels == "cpu" else []
    after = sample_load()
    title = f"{config.model}, {ready.dtype}, {ready.kernels} kernels, {thread_count(ready.threads)}"
    show_figures(console, figures, title)
    console.print(attention_line(figures, shape, device))
    if alone:
        show_kernels(console, alone)
    noise = (
        "" if before.quiet and after.quiet else " [yellow]Others kept the machine busy: figures are too low.[/yellow]"
    )
    console.print(f"Before: {before}; after: {after}.{noise}")
    if json_file is not None:
        record = {
            "model": config.model,
            "dtype": ready.dtype,
            "kernels": ready.kernels,
            "threads": ready.threads,
            "processor": cpu_name(),
            "load_before": asdict(before),
            "load_after": asdict(after),
            "bandwidth": device.bandwidth,
            "rates": device.rates,
            "limits": None if machine.limits is None else asdict(machine.limits),
            "figures": [{**asdict(each), "share": each.share} for each in figures],
            "kernels_alone": [{**asdict(each), "share": each.share} for each in alone],
        }
        json_file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        console.print(f"written: {json_file}")


def run(engine: Engine, workload: Workload, shape: ModelShape, device: Device, repeats: int) -> Figure:
    """A run to warm up where that is quick, then the measured ones. Prompts never repeat, so nothing is cached."""
    measure = _measured_decode if workload.decodes else _measured_prefill
    draw = random.Random(workload.name)
    started = time.perf_counter()
    speeds = [measure(engine, workload, draw)]
    if time.perf_counter() - started < PATIENCE / (repeats + 1):
        speeds.clear()
    while len(speeds) < repeats and (not speeds or time.perf_counter() - started < PATIENCE):
        speeds.append(measure(engine, workload, draw))
    if workload.decodes:
        context, done = workload.prompt + workload.output // 2, 1
        bound = decode_bound(shape, device, workload.requests, context)
    else:
        context, done = workload.prompt // 2, workload.prompt
        bound = prefill_bound(shape, device, workload.requests, workload.prompt)
    return Figure(
        workload=workload.name,
        context=context,
        requests=workload.requests,
        decodes=workload.decodes,
        runs=len(speeds),
        tokens_per_second=statistics.median(speeds),
        low=min(speeds),
        high=max(speeds),
        limit=workload.requests * done / bound.seconds,
        bound_by=bound.limit,
    )


def attention_line(figures: Sequence[Figure], shape: ModelShape, device: Device) -> str:
    """What attention reaches, from one stream's decoding at two contexts: only the KV that it reads differs."""
    single = sorted((each for each in figures if each.decodes and each.requests == 1), key=lambda each: each.context)
    if len(single) < 2:
        return ""
    near, far = single[0], single[-1]
    positions = far.context - near.context
    more = 1 / far.tokens_per_second - 1 / near.tokens_per_second
    if more <= 0:
        return f"Attention to {positions:,} more positions took no time that could be seen beside the noise."
    rate = positions * shape.kv_token_bytes / more
    share = rate / device.bandwidth
    return (
        f"Attention: {positions:,} more positions took {seconds(more)} a token; "
        f"KV was read at {short(rate, 'B/s')}, {share:.0%} of the limit."
    )


def _measured_decode(engine: Engine, workload: Workload, draw: random.Random) -> float:
    """Output tokens a second from the moment when all have their first token until the first one ends.

    With several requests others' prefills fall between the first tokens of the early ones; those tokens don't count.
    """
    outputs = _outputs(engine, workload, draw)
    usages = [output.finish.usage for output in outputs]
    last_first = max(usage.first_token_seconds for usage in usages)
    tokens = sum(
        (usage.completion_tokens - 1)
        * (usage.total_seconds - last_first)
        / (usage.total_seconds - usage.first_token_seconds)
        for usage in usages
    )
    return tokens / (max(usage.total_seconds for usage in usages) - last_first)


def _measured_prefill(engine: Engine, workload: Workload, draw: random.Random) -> float:
    """Prompt tokens a second, until the first output token."""
    outputs = _outputs(engine, workload, draw)
    return workload.requests * workload.prompt / max(output.finish.usage.first_token_seconds for output in outputs)


def _outputs(engine: Engine, workload: Workload, draw: random.Random) -> list[Output]:
    from palmette.runtime.frontend import collect

    usable = engine.frontend.vocabulary.size
    prompts = [[draw.randrange(usable) for _ in range(workload.prompt)] for _ in range(workload.requests)]
    params = SamplingParams(max_tokens=workload.output, temperature=0, ignore_eos=True)

    async def all_of_them() -> list[Output]:
        return await collect([engine.frontend.submit(prompt, params) for prompt in prompts])

    return engine.run(all_of_them())


# Tables


def show_machine(console: Console, machine: Machine) -> None:
    from rich.table import Table

    table = Table(title=f"{cpu_name()}: best of this moment", title_justify="left", box=None, pad_edge=False)
    table.add_column("limit")
    table.add_column("a second", justify="right")
    limits = machine.limits
    if limits is None:
        table.add_row("streaming reads (by torch: no compiler here)", short(machine.bandwidth, "B"))
    else:
        for count, rate in limits.read.items():
            small = limits.read_small[count]
            table.add_row(
                f"streaming reads, {thread_count(count)}: 268 MB / 101 MB", f"{short(rate, 'B')} / {short(small, 'B')}"
            )
        table.add_row(f"copying, read and written, {thread_count(limits.threads)}", short(limits.copy, "B"))
    for kind, rate in machine.rates.items():
        table.add_row(f"{kind} multiply-adds × 2, {thread_count(machine.threads)}", short(rate, "op"))
    console.print(table)


def show_figures(console: Console, figures: Sequence[Figure], title: str) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("work", "tokens/s", "low – high", "limit", "bound by", "reached"):
        table.add_column(name, justify="left" if name in ("work", "bound by") else "right", no_wrap=True)
    for each in figures:
        table.add_row(
            each.workload,
            figure(each.tokens_per_second),
            f"{figure(each.low)} – {figure(each.high)}",
            figure(each.limit),
            each.bound_by,
            f"{each.share:.0%}",
        )
    console.print(table)


def show_kernels(console: Console, figures: Sequence[KernelFigure]) -> None:
    from rich.table import Table

    table = Table(title="Single kernels, one thread", title_justify="left", box=None, pad_edge=False)
    for name in ("kernel", "rows", "time", "weights", "operations", "bound by", "reached"):
        table.add_column(name, justify="left" if name in ("kernel", "bound by") else "right", no_wrap=True)
    for each in figures:
        table.add_row(
            each.kernel,
            str(each.rows),
            f"{each.seconds * 1e3:.2f} ms",
            short(each.bytes / each.seconds, "B/s"),
            short(each.operations / each.seconds, "op/s"),
            each.bound_by,
            f"{each.share:.0%}",
        )
    console.print(table)


def tell(console: Console, words: str) -> None:
    """What is being done, on a terminal only."""
    if console.is_terminal:
        console.print(f"[dim]{words} …[/dim]")
