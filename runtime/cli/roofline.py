"""`palmette roofline`: what a model can do at best on a device, in a table, a text plot and an SVG."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from palmette.runtime.cli.errors import guarded
from palmette.runtime.cli.models import fetch_model
from palmette.runtime.cli.this_machine import measure_machine, sample_load, wide_console
from palmette.runtime.config import DEFAULT_MODEL
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.roofline.bound import Bound, decode_bound, memory_needed, prefill_bound
from palmette.runtime.roofline.cost import kv_overtakes
from palmette.runtime.roofline.device import DEVICES, Device
from palmette.runtime.roofline.shape import (
    BITS,
    PRESETS,
    KvFormat,
    ModelShape,
    StoredWeights,
    WeightFormat,
    model_shape,
)

if TYPE_CHECKING:
    from rich.table import Table

    from palmette.runtime.checkpoint.protocol import Checkpoint

THIS = "this"
BATCHES = "1,8,32,128"
CAPTION = (
    "Bound by weights or KV: memory traffic; by linears, attention or head: arithmetic. Best cases: full rates, "
    "perfect overlap.\n* does not fit into the device's memory"
)
LENGTHS = (1024, 8192, 32_768)


@guarded
def roofline(
    model: Annotated[
        str, typer.Option("--model", "-m", help=f"A model as other commands take it, or one of {', '.join(PRESETS)}.")
    ] = DEFAULT_MODEL,
    device: Annotated[
        str, typer.Option("--device", "-d", help=f"{THIS} (measured now), {' or '.join(DEVICES)}.")
    ] = THIS,
    devices: Annotated[int, typer.Option("--devices", min=1, help="So many of them, sharing everything ideally.")] = 1,
    dtype: Annotated[str, typer.Option("--dtype", help="How weights are stored; auto: as in the file.")] = "auto",
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", help="How keys and values are stored.")] = "bf16",
    batch: Annotated[str, typer.Option("--batch", "-b", help="Batch sizes, with commas between.")] = BATCHES,
    context: Annotated[
        str | None, typer.Option("--context", "-c", help="Context lengths, with commas between.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help=f"With --device {THIS}.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", dir_okay=False, help="Write the plots here (SVG).")] = None,
) -> None:
    """The bounds of prefill and decode by batch and context: bytes, operations, and which of them binds."""
    from palmette.runtime.roofline.charts import longest_shown, roofline_chart, traffic_chart
    from palmette.runtime.roofline.plot import svg, text

    batches = _numbers("batch", batch)
    shape = shape_of(model, dtype, kv_dtype)
    contexts = _numbers("context", context) if context else _contexts(shape)
    console = wide_console()
    target = find_device(device, devices, shape, threads)
    for line in headline(model, shape, target, batches):
        console.print(line, soft_wrap=True)
    console.print(table(shape, target, batches, contexts))
    charts = [
        roofline_chart(shape, target, batches, contexts),
        traffic_chart(shape, batches, longest_shown(shape, batches, contexts)),
    ]
    typer.echo(text(charts[1]))
    if out is not None:
        out.write_text(
            svg(charts, f"{model} ({shape.weights} weights, {shape.kv} KV) on {target.name}"), encoding="utf-8"
        )
        typer.echo(f"written: {out}")


def shape_of(model: str, dtype: str = "auto", kv_dtype: str = "bf16") -> ModelShape:
    """A preset's shape, or that of a model here. Raises InvalidRequest or ModelError."""
    kv = cast(KvFormat, _one_of("kv_dtype", kv_dtype, get_args(KvFormat)))
    stored = None if dtype == "auto" else StoredWeights.all_in(_weight_format(dtype))
    if model in PRESETS:
        return model_shape(PRESETS[model], stored or "bf16", kv)
    fetch_model(model)
    from palmette.runtime.checkpoint.open import open_checkpoint
    from palmette.runtime.checkpoint.resolve import resolve

    checkpoint = open_checkpoint(resolve(model))
    return model_shape(checkpoint.config, stored or stored_weights(checkpoint), kv)


def stored_weights(checkpoint: Checkpoint) -> StoredWeights:
    """From the tensors themselves, so that mixed quantisations are counted as they are."""
    from palmette.runtime.checkpoint.llama import EMBEDDING, HEAD

    sizes: Counter[WeightFormat] = Counter()
    elements = stored = 0.0
    names = checkpoint.tensor_names()
    for name in names:
        raw = checkpoint.tensor(name)
        if name not in (EMBEDDING, HEAD) and len(raw.shape) == 2:
            count = math.prod(raw.shape)
            sizes[raw.dtype] += count
            elements, stored = elements + count, stored + count * BITS[raw.dtype]
    embedding = BITS[checkpoint.tensor(EMBEDDING).dtype]
    head = BITS[checkpoint.tensor(HEAD).dtype] if HEAD in names else embedding
    return StoredWeights(sizes.most_common(1)[0][0], stored / elements, head, embedding)


def find_device(name: str, count: int, shape: ModelShape, threads: int | None) -> Device:
    if name == THIS:
        typer.echo(f"Measuring this machine ({sample_load()}) …", err=True)
        machine = measure_machine(threads, progress=lambda words: typer.echo(words, err=True))
        return machine.device(shape.weight_bytes).times(count)
    if threads is not None:
        raise InvalidRequest(f"--threads is for --device {THIS}, not {name!r}.", param="threads")
    return DEVICES[_one_of("device", name, (*DEVICES, THIS))].times(count)


def headline(model: str, shape: ModelShape, device: Device, batches: Sequence[int]) -> list[str]:
    """What holds for every row of the table."""
    parameters = shape.block_parameters + shape.head_parameters
    bits = 8 * shape.weight_bytes / parameters
    rates = ", ".join(f"{kind} {figure(rate / 1e12)}" for kind, rate in device.rates.items())
    used = device.arithmetic(shape.weights)
    ridge = device.rates[used] / device.bandwidth
    crossings = ", ".join(f"{kv_overtakes(shape, batch):,.0f} (batch {batch})" for batch in batches)
    one_stream = figure(1 / decode_bound(shape, device, 1, 0).seconds)
    lines = [
        f"[bold]{model}[/bold]: {figure(parameters / 1e6)} M weights that a step reads, {shape.weights}"
        f" ({bits:.3g} bits each): {figure(shape.weight_bytes / 1e6)} MB;"
        f" KV {shape.kv}: {shape.kv_token_bytes:,} bytes a token",
        f"[bold]{device.name}[/bold]: {figure(device.bandwidth / 1e9)} GB/s; {rates} T operations/s;"
        f" {figure(device.memory / 1e9)} GB",
        f"Linears compute in {used}: below {figure(ridge)} operations a byte memory binds; "
        f"one stream decodes at best {one_stream} tokens/s",
        f"KV overtakes the weights from a context of {crossings}",
    ]
    if shape.resident_bytes > device.memory:
        least = math.ceil(shape.resident_bytes / device.memory)
        lines.append(
            f"[yellow]The weights ({shape.resident_bytes / 1e9:,.4g} GB) don't fit into its memory: at least {least} "
            "of them are needed (--devices).[/yellow]"
        )
    return lines


def table(shape: ModelShape, device: Device, batches: Sequence[int], contexts: Sequence[int]) -> Table:
    from rich.table import Table

    result = Table(box=None, pad_edge=False, caption=CAPTION, caption_justify="left")
    for name in ("step", "batch", "tokens", "bytes", "of it KV", "op/byte", "bound by", "latency", "tokens/s"):
        result.add_column(name, justify="left" if name in ("step", "bound by") else "right", no_wrap=True)
    for context in contexts:
        for batch in batches:
            bound = decode_bound(shape, device, batch, context)
            _add(result, "decode", shape, device, batch, context, bound, batch)
        result.add_section()
    for context in contexts:
        bound = prefill_bound(shape, device, 1, context)
        _add(result, "prefill", shape, device, 1, context, bound, context)
    return result


def _add(
    result: Table, step: str, shape: ModelShape, device: Device, batch: int, context: int, bound: Bound, tokens: int
) -> None:
    from palmette.runtime.roofline.plot import short

    fits = memory_needed(shape, batch, context) <= device.memory
    result.add_row(
        step,
        f"{batch:,}" + ("" if fits else "*"),
        f"{context:,}",
        short(bound.cost.bytes, "B"),
        f"{bound.cost.kv / bound.cost.bytes:.0%}",
        figure(bound.cost.intensity),
        bound.limit,
        seconds(bound.seconds),
        figure(tokens / bound.seconds),
    )


def figure(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    if value >= 1:
        return f"{value:,.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


def _contexts(shape: ModelShape) -> list[int]:
    fitting = [length for length in LENGTHS if length <= shape.context_length]
    return fitting or [shape.context_length]


def _numbers(name: str, words: str) -> list[int]:
    try:
        found = [int(word.replace("_", "")) for word in words.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InvalidRequest(
            f"--{name} {words!r} is not a list of whole numbers of 1 or more.", hint="For example 1,8,64.", param=name
        )
    return sorted(set(found))


def _weight_format(word: str) -> WeightFormat:
    names: dict[str, WeightFormat] = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
    return names.get(word) or cast(WeightFormat, _one_of("dtype", word, ("auto", *BITS)))


def _one_of(name: str, word: str, words: Sequence[str]) -> str:
    if word not in words:
        raise InvalidRequest(
            f"--{name.replace('_', '-')} {word!r} is not known.", hint=f"There are: {', '.join(words)}.", param=name
        )
    return word
