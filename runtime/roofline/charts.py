"""What a model does on a device, as charts: the roofline, and where KV traffic overtakes the weights.

Called by `palmette roofline`.
"""

from __future__ import annotations

from collections.abc import Sequence

from palmette.runtime.roofline.bound import Bound, decode_bound, prefill_bound
from palmette.runtime.roofline.cost import kv_overtakes
from palmette.runtime.roofline.device import Device
from palmette.runtime.roofline.plot import Chart, Mark, Point, Series
from palmette.runtime.roofline.shape import ModelShape

SHORTEST = 64  # tokens of context where the traffic chart begins
POINTS = 33


def roofline_chart(shape: ModelShape, device: Device, batches: Sequence[int], contexts: Sequence[int]) -> Chart:
    """Operations a second against operations a byte: the roof, and where decode and prefill meet it."""
    peak = device.rate(shape.weights)
    ridge = peak / device.bandwidth
    decode = [(context, [decode_bound(shape, device, batch, context) for batch in batches]) for context in contexts]
    prefill = [prefill_bound(shape, device, 1, context) for context in contexts]
    bounds = [bound for _, row in decode for bound in row] + prefill
    low = min(ridge, *(bound.cost.intensity for bound in bounds)) / 2
    high = max(ridge, *(bound.cost.intensity for bound in bounds)) * 2
    roof = Series(
        f"roof ({device.arithmetic(shape.weights)})", [(low, low * device.bandwidth), (ridge, peak), (high, peak)]
    )
    series = [roof]
    series += [
        Series(f"decode at {context:,}", [_point(bound) for bound in row], line=False) for context, row in decode
    ]
    series.append(Series(f"prefill {_span(contexts)}", [_point(bound) for bound in prefill], line=False))
    return Chart(
        f"Roofline: decode by batch {_span(batches)}, prefill by length",
        "arithmetic intensity (operations a byte)",
        "operations a second",
        series,
        [Mark((ridge, peak), f"{ridge:.3g} operations a byte")],
        unit_y="op",
    )


def traffic_chart(shape: ModelShape, batches: Sequence[int], longest: int) -> Chart:
    """Bytes that one decode step reads, by context: the weights, and each batch's KV; marked where they are equal."""
    contexts = _geometric(SHORTEST, max(longest, 2 * SHORTEST), POINTS)
    weights = Series("weights", [(contexts[0], shape.weight_bytes), (contexts[-1], shape.weight_bytes)], dashed=True)
    kv = [
        Series(f"KV of batch {batch}", [(context, batch * context * shape.kv_token_bytes) for context in contexts])
        for batch in batches
    ]
    crossings = [(batch, kv_overtakes(shape, batch)) for batch in batches]
    marks = [
        Mark((context, shape.weight_bytes), f"batch {batch}: {context:,.0f}")
        for batch, context in crossings
        if contexts[0] <= context <= contexts[-1]
    ]
    title = "A decode step's reads: where KV overtakes the weights"
    return Chart(title, "context (tokens)", "bytes a step", [weights, *kv], marks, unit_y="B")


def longest_shown(shape: ModelShape, batches: Sequence[int], contexts: Sequence[int]) -> int:
    """A context for the end of the traffic chart: the model's, or what shows the largest batch's crossing."""
    crossing = int(2 * kv_overtakes(shape, max(batches)))
    return max(*contexts, min(shape.context_length, max(crossing, 4096)), SHORTEST)


def _point(bound: Bound) -> Point:
    return bound.cost.intensity, bound.cost.operations / bound.seconds


def _span(values: Sequence[int]) -> str:
    return f"{min(values):,}" if len(values) == 1 else f"{min(values):,}–{max(values):,}"


def _geometric(low: float, high: float, count: int) -> list[float]:
    return [low * (high / low) ** (index / (count - 1)) for index in range(count)]
