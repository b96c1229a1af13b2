"""What replays say: figures by policy, eviction and cache size, and their curves.

Pure functions from Outcomes to rows and charts. Called by `palmette simulate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from palmette.runtime.roofline.plot import Chart, Point, Series, short
from palmette.runtime.simulation.run import Outcome, Served

QUANTILES = (0.5, 0.95, 0.99)


class Bounds(msgspec.Struct, frozen=True):
    """Hit rates of a cache of one size that sees the trace's requests one by one, in order of arrival.

    `belady` knows the future, `infinite` forgets nothing.
    """

    pool_tokens: int
    lru: float
    belady: float
    infinite: float


class Spread(NamedTuple):
    """The median, the 95th and 99th of a hundred, and the mean; NaN where there is nothing."""

    p50: float
    p95: float
    p99: float
    mean: float


class Targets(msgspec.Struct, frozen=True):
    """What goodput asks of a request: seconds to its first token, and an output token after that, in the mean."""

    first_token: float
    per_token: float


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(math.nan, math.nan, math.nan, math.nan)
    last = len(ordered) - 1
    p50, p95, p99 = (ordered[min(last, int(share * len(ordered)))] for share in QUANTILES)
    return Spread(p50, p95, p99, sum(ordered) / len(ordered))


def first_token(served: Iterable[Served]) -> Spread:
    return spread(each.first_token for each in served)


def per_token(served: Iterable[Served]) -> Spread:
    return spread(each.per_token for each in served if each.per_token is not None)


def slowest_share(served: Sequence[Served], share: float = 0.05) -> float:
    """Of the total time to first tokens, what the slowest `share` of requests take: how unevenly it is waited."""
    waits = sorted((each.first_token for each in served), reverse=True)
    total = sum(waits)
    return sum(waits[: math.ceil(share * len(waits))]) / total if total else 0.0


def _names(outcomes: Sequence[Outcome]) -> Callable[[Outcome], str]:
    """Names for lines: what all outcomes have in common isn't said."""
    policies = len({outcome.policy for outcome in outcomes}) > 1
    evictions = len({outcome.eviction for outcome in outcomes}) > 1

    def name(outcome: Outcome) -> str:
        parts = [*([outcome.policy] if policies else []), *([outcome.eviction] if evictions else [])]
        return " ".join(parts) or "served"

    return name


def charts(outcomes: Sequence[Outcome], bounds: Sequence[Bounds]) -> list[Chart]:
    """By cache size: the hit rate beside its bounds, and times to the first token. By quantile: those times again."""
    return [*_by_size(outcomes, bounds), _quantiles(outcomes)]


def _by_size(outcomes: Sequence[Outcome], bounds: Sequence[Bounds]) -> list[Chart]:
    called = _names(outcomes)
    rates = _lines((called(each), (each.pool_tokens, each.hit_rate)) for each in outcomes)
    alone = [
        Series(name, [(each.pool_tokens, getattr(each, name.lower())) for each in bounds], dashed=True)
        for name in ("LRU", "Belady", "Infinite")
    ]
    times = _lines(
        (f"{called(each)} {name}", (each.pool_tokens, getattr(first_token(each.answered), name)))
        for each in outcomes
        for name in ("p50", "p95", "p99")
    )
    return [
        Chart("Hit rate by cache size", "cache (tokens)", "share of prompt tokens", _positive([*rates, *alone])),
        Chart("Time to the first token", "cache (tokens)", "seconds", _positive(times), unit_y="s"),
    ]


def _quantiles(outcomes: Sequence[Outcome]) -> Chart:
    called = _names(outcomes)
    shares = [1 - 2 ** (-step / 2) for step in range(1, 20)]
    lines = []
    for outcome in outcomes:
        waits = sorted(each.first_token for each in outcome.answered)
        points = [(1 / (1 - share), waits[int(share * len(waits))]) for share in shares] if waits else []
        lines.append(Series(f"{called(outcome)} {short(outcome.pool_tokens)}", points))
    title = "The slowest of so many requests: first token"
    return Chart(title, "requests", "seconds", _positive(lines), unit_y="s")


def _lines(points: Iterable[tuple[str, Point]]) -> list[Series]:
    lines: dict[str, list[Point]] = {}
    for name, point in points:
        lines.setdefault(name, []).append(point)
    return [Series(name, sorted(each)) for name, each in lines.items()]


def _positive(lines: Iterable[Series]) -> list[Series]:
    """Axes are logarithmic: what is 0 can't be drawn."""
    drawn = []
    for line in lines:
        points = [(x, y) for x, y in line.points if x > 0 and y > 0]
        if points:
            drawn.append(Series(line.name, points, line=len(points) > 1, dashed=line.dashed))
    return drawn


def figures(outcomes: Sequence[Outcome], bounds: Sequence[Bounds], targets: Targets) -> dict[str, object]:
    """For a file: the bounds, and each outcome's figures with its distributions."""
    return {"bounds": bounds, "targets": targets, "runs": [_figures(each, targets) for each in outcomes]}


def _figures(outcome: Outcome, targets: Targets) -> dict[str, object]:
    answered = outcome.answered
    return {
        "policy": outcome.policy,
        "eviction": outcome.eviction,
        "pool_tokens": outcome.pool_tokens,
        "requests": len(outcome.served),
        "failed": len(outcome.served) - len(answered),
        "hit_rate": outcome.hit_rate,
        "first_token": first_token(answered)._asdict(),
        "per_token": per_token(answered)._asdict(),
        "slowest_5_percent": slowest_share(answered),
        "goodput": outcome.goodput(targets.first_token, targets.per_token),
        "duration": outcome.duration,
        "busy": outcome.busy,
        "steps": outcome.steps,
        "retractions": outcome.retractions,
    }
