"""`palmette simulate`: a trace against the real tree and scheduler, with predicted step times in place of a model."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from palmette.runtime.cli.errors import guarded
from palmette.runtime.cli.roofline import THIS, find_device, shape_of
from palmette.runtime.cli.this_machine import wide_console
from palmette.runtime.config import EngineConfig, Policy
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.shape import PRESETS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from palmette.runtime.simulation.report import Bounds, Targets
    from palmette.runtime.simulation.run import Outcome, Progress
    from palmette.runtime.simulation.traces import Trace

PAGE = 16  # where the trace has no blocks
SIZES = ("1%", "5%", "10%", "20%")
CAPTION = (
    "hit: prompt tokens not computed, of all. LRU, Belady (knows the future) and infinite: a cache that sees the "
    "requests one by one, as they arrive.\nslowest 5%: their share of all time to first tokens. "
    "Times are virtual: predicted steps, not measured ones."
)


@guarded
def simulate(
    trace: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="Mooncake's JSON lines, Azure's CSV, or what --record wrote."),
    ],
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="Which waiting request starts first (several times: compare).")
    ] = None,
    cache: Annotated[
        list[str] | None,
        typer.Option(
            "--cache", help=f"Tokens, or a share of all prompt tokens (0.05, 5%). (default: {', '.join(SIZES)})"
        ),
    ] = None,
    eviction: Annotated[list[str] | None, typer.Option("--eviction", help="Which cached page goes first.")] = None,
    page_size: Annotated[
        int | None, typer.Option("--page-size", min=1, help=f"(default: the trace's blocks, else {PAGE})")
    ] = None,
    speed: Annotated[float, typer.Option("--speed", help="Arrivals so many times as fast.")] = 1.0,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The first so many requests.")] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help=f"As `palmette roofline` takes it: one of {', '.join(PRESETS)} …")
    ] = "llama-3.1-8b",
    dtype: Annotated[str, typer.Option("--dtype", help="How weights are stored; auto: as in the file.")] = "auto",
    device: Annotated[
        str, typer.Option("--device", "-d", help=f"{THIS} (measured now), {' or '.join(DEVICES)}.")
    ] = "h100",
    devices: Annotated[int, typer.Option("--devices", min=1, help="So many of them, sharing everything ideally.")] = 4,
    max_running: Annotated[int, typer.Option("--max-running", min=1, help="Requests that run at once.")] = 256,
    step_tokens: Annotated[int, typer.Option("--step-tokens", min=1, help="Tokens of one step at most.")] = 8192,
    first_token: Annotated[float, typer.Option("--ttft", help="Goodput: seconds to the first token.")] = 2.0,
    per_token: Annotated[float, typer.Option("--tpot", help="Goodput: seconds an output token after that.")] = 0.1,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", file_okay=False, help="Write curves (SVG, PNG) and figures (JSON) here."),
    ] = None,
) -> None:
    """Replay a trace in virtual time: hit rates beside their bounds, latencies and goodput by policy and cache size."""
    from palmette.radix_cache.eviction import eviction_policy
    from palmette.runtime.simulation.bounds import bounds as bounds_of
    from palmette.runtime.simulation.report import Targets
    from palmette.runtime.simulation.run import replay
    from palmette.runtime.simulation.traces import read_trace
    from palmette.runtime.step_time import StepTimeModel

    if not 0 < speed < float("inf"):
        raise InvalidRequest(f"--speed {speed!r} is no positive number.", param="speed")
    policies = [_policy(word) for word in policy or [EngineConfig().policy]]
    rules = eviction or ["lru"]
    for name in rules:
        eviction_policy(name)  # a wrong one is told before anything is read
    read = read_trace(trace, limit=limit)
    sizes = sorted({_tokens(word, read.prompt_tokens) for word in cache or SIZES})
    shape = shape_of(model, dtype)
    steps = StepTimeModel(shape, find_device(device, devices, shape, None))
    page = page_size or (read.block_tokens if read.block_tokens > 1 else PAGE)
    console = wide_console()
    console.print(_headline(read, model, device, devices))
    pools = [size // page * page for size in sizes]  # as the pool has them
    bounds = bounds_of(read, pools)
    outcomes = []
    for word in policies:
        config = EngineConfig(
            policy=word,
            page_size=page,
            max_running=max_running,
            step_tokens=step_tokens,
            ttft_target_ms=1000 * first_token,
        )
        for name in rules:
            for size in sizes:
                with _progress(f"{word}, {name}, {size:,} tokens", len(read.requests)) as progress:
                    outcomes.append(
                        replay(
                            read, config, steps, pool_tokens=size, eviction=name, speed=speed,
                            progress=progress,
                        )
                    )  # fmt: skip
    targets = Targets(first_token, per_token)
    console.print(table(outcomes, bounds, read, targets))
    _show_curves(console, outcomes, bounds, f"{read.name}: {model} on {devices} × {device}", out)
    if out is not None:
        _write_figures(out / "simulate.json", outcomes, bounds, targets)


def _policy(word: str) -> Policy:
    if word not in get_args(Policy):
        raise InvalidRequest(
            f"--policy {word!r} is not known.", hint=f"There are: {', '.join(get_args(Policy))}.", param="policy"
        )
    return word  # type: ignore[return-value]


def _tokens(word: str, total: int) -> int:
    """A cache size in tokens: "5%" and "0.05" are shares of `total`."""
    try:
        value = float(word[:-1]) / 100 if word.endswith("%") else float(word.replace("_", ""))
    except ValueError:
        value = -1.0
    share = word.endswith("%") or "." in word
    if not (0 < value <= 10 if share else 1 <= value < 2**40 and value == int(value)):
        raise InvalidRequest(
            f"--cache {word!r} is no number of tokens and no share of the trace's prompt tokens.",
            hint="For example 200000, 5% or 0.05.", param="cache",
        )  # fmt: skip
    return max(1, int(value * total)) if share else int(value)


def _headline(trace: Trace, model: str, device: str, devices: int) -> str:
    last = trace.requests[-1].arrival
    return (
        f"[bold]{trace.name}[/bold] ({trace.form}): {len(trace.requests):,} requests in {last:,.0f} s, "
        f"{trace.prompt_tokens:,} prompt and {trace.output_tokens:,} output tokens; {model} on {devices} × {device}"
    )


@contextmanager
def _progress(words: str, total: int) -> Iterator[Progress]:
    """A bar on a terminal's stderr; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(words, total=total)
        yield lambda done: bar.update(task, completed=done)


def table(outcomes: Sequence[Outcome], bounds: Sequence[Bounds], trace: Trace, targets: Targets) -> Table:
    from rich.table import Table

    from palmette.runtime.simulation.report import first_token, per_token, slowest_share

    result = Table(box=None, pad_edge=False, caption=CAPTION, caption_justify="left")
    goal = f"in {targets.first_token:g} s, {targets.per_token:g} s/token"
    columns = (
        "policy", "eviction", "cache", "share", "hit", "LRU", "Belady", "infinite", "TTFT p50", "p95", "p99",
        "TPOT p50", "p95", "p99", "slowest 5%", f"goodput/s\n{goal}", "busy", "failed",
    )  # fmt: skip
    for name in columns:
        result.add_column(name, justify="left" if name in columns[:2] else "right", no_wrap=True)
    by_size = {each.pool_tokens: each for each in bounds}
    for outcome in outcomes:
        answered, bound = outcome.answered, by_size.get(outcome.pool_tokens)
        ttft, tpot = first_token(answered), per_token(answered)
        result.add_row(
            outcome.policy,
            outcome.eviction,
            f"{outcome.pool_tokens:,}",
            f"{outcome.pool_tokens / trace.prompt_tokens:.1%}",
            f"[bold]{outcome.hit_rate:.3f}[/bold]",
            *([f"{bound.lru:.3f}", f"{bound.belady:.3f}", f"{bound.infinite:.3f}"] if bound else ["", "", ""]),
            *(_seconds(value) for value in ttft[:3]),
            *(_seconds(value) for value in tpot[:3]),
            f"{slowest_share(answered):.0%}",
            f"{outcome.goodput(targets.first_token, targets.per_token):.2f}",
            f"{outcome.busy / outcome.duration:.0%}" if outcome.duration else "",
            f"{len(outcome.served) - len(answered):,}",
        )
    return result


def _seconds(value: float) -> str:
    if value != value:
        return "–"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _show_curves(
    console: Console, outcomes: Sequence[Outcome], bounds: Sequence[Bounds], title: str, out: Path | None
) -> None:
    from palmette.runtime.roofline.plot import svg, text
    from palmette.runtime.simulation.report import charts

    drawn = charts(outcomes, bounds)
    for chart in drawn:
        if any(series.line for series in chart.series):
            typer.echo("\n" + text(chart))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        picture = out / "simulate.svg"
        picture.write_text(svg(drawn, title), encoding="utf-8")
        pixels = _png(picture)
        written = [picture, *([] if pixels is None else [pixels]), out / "simulate.json"]
        console.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
        if pixels is None:
            typer.echo("(as PNG too with the extra png: pip install 'palmette[png]')")


def _png(picture: Path) -> Path | None:
    """The picture as PNG beside it, where there is a renderer: an optional one, none of the dependencies draws."""
    try:
        resvg_py = importlib.import_module("resvg_py")
    except ImportError:
        return None
    pixels = picture.with_suffix(".png")
    pixels.write_bytes(bytes(resvg_py.svg_to_bytes(svg_path=str(picture), zoom=2.0)))
    return pixels


def _write_figures(path: Path, outcomes: Sequence[Outcome], bounds: Sequence[Bounds], targets: Targets) -> None:
    """What the table shows, and every request's own figures."""
    import msgspec

    from palmette.runtime.simulation.report import figures

    path.write_bytes(msgspec.json.format(msgspec.json.encode(figures(outcomes, bounds, targets)), indent=1))
