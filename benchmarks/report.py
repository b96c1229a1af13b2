"""What a comparison says: medians, spreads and ratios; as a table and as a plot (SVG, written here).

Knows no system and takes no times. Called by run.py and tests.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from rich.table import Table

from benchmarks.loop import Outcome
from benchmarks.quiet import Load
from benchmarks.workloads import Headline

QUIET = 0.06
LOWER_IS_BETTER: tuple[Headline, ...] = ("seconds", "first token ms")


@dataclass(frozen=True)
class Measurement:
    """One run of one workload on one system; exactly one of `outcome` and `error` is there."""

    system: str
    workload: str
    run: int
    outcome: Outcome | None
    error: str | None
    before: Load
    after: Load

    @property
    def result(self) -> str:
        """In words, for progress."""
        if self.outcome is None:
            return f"failed: {self.error}"
        told = f"{figure(self.outcome.value)} {self.outcome.headline}"
        if self.outcome.ended is None:
            return told
        return f"{told}, given up: {self.outcome.ended} calls ended, {figure(self.outcome.call_seconds or 0)} s each"


@dataclass(frozen=True)
class Summary:
    """One workload on one system.

    `ratio`: how many times faster the first system is than this one (medians).
    """

    workload: str
    system: str
    headline: Headline
    median: float
    low: float
    high: float
    runs: int
    ratio: float | None
    reached: float | None  # share of prompt tokens reused, as the system reports it
    ceiling: float  # share that an infinite cache would have reused
    noisy_runs: int


def summarise(measurements: Sequence[Measurement]) -> list[Summary]:
    """By workload, then system, in the order they were measured. Failed runs don't count."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in measurements:
        if measurement.outcome is not None:
            groups.setdefault((measurement.workload, measurement.system), []).append(measurement)
    first_system = measurements[0].system if measurements else ""
    medians = {key: statistics.median(o.value for o in _outcomes(group)) for key, group in groups.items()}
    summaries: list[Summary] = []
    for workload in dict.fromkeys(workload for workload, _ in groups):
        for (its_workload, system), group in groups.items():
            if its_workload == workload:
                ours = medians.get((workload, first_system))
                summaries.append(_summary(group, system, medians[workload, system], ours, system == first_system))
    return summaries


def _summary(group: list[Measurement], system: str, median: float, ours: float | None, is_first: bool) -> Summary:
    outcomes = _outcomes(group)
    headline = outcomes[0].headline
    ratio = None
    if ours is not None and not is_first:
        ratio = median / ours if headline in LOWER_IS_BETTER else ours / median
    reached = [o.reuse.reached for o in outcomes if o.reuse.reached is not None]
    return Summary(
        workload=outcomes[0].workload,
        system=system,
        headline=headline,
        median=median,
        low=min(o.value for o in outcomes),
        high=max(o.value for o in outcomes),
        runs=len(outcomes),
        ratio=ratio,
        reached=statistics.median(reached) if reached else None,
        ceiling=statistics.median(o.reuse.ceiling for o in outcomes),
        noisy_runs=sum(1 for m in group if (m.before.busy or 0) > QUIET),
    )


def _outcomes(group: list[Measurement]) -> list[Outcome]:
    return [measurement.outcome for measurement in group if measurement.outcome is not None]


def figure(value: float) -> str:
    """Three significant digits: 0.0123, 1.23, 12.3, 1,230."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(summaries: Sequence[Summary], *, title: str, limits: dict[str, float] | None = None) -> Table:
    """One row a workload and system. `limits`: a workload's best possible headline on this machine."""
    result = Table(title=title, title_justify="left")
    for column in ("workload", "system"):
        result.add_column(column, no_wrap=True)
    for column in ("median", "low – high", "runs", "first is", "reused / reusable", "of limit"):
        result.add_column(column, justify="right", no_wrap=True)
    previous = ""
    for line in summaries:
        if previous and line.workload != previous:
            result.add_section()
        best = (limits or {}).get(line.workload)
        reached = "?" if line.reached is None else f"{line.reached:.3f}"
        result.add_row(
            f"{line.workload} ({line.headline})" if line.workload != previous else "",
            line.system,
            figure(line.median),
            f"{figure(line.low)} – {figure(line.high)}",
            f"{line.runs}" + (f" ({line.noisy_runs} noisy)" if line.noisy_runs else ""),
            "" if line.ratio is None else f"{line.ratio:.2f}× faster",
            f"{reached} / {line.ceiling:.3f}",
            "" if best is None else f"{_speed(line) / _speed_of(line.headline, best):.0%}",
        )
        previous = line.workload
    return result


def _speed_of(headline: Headline, value: float) -> float:
    return 1 / value if headline in LOWER_IS_BETTER else value


def _speed(line: Summary) -> float:
    return _speed_of(line.headline, line.median)


COLOURS = ("#2f7d4f", "#8a8f98", "#b5793a", "#5a7fb0", "#9b5f8f", "#6b6b3a")
BAR, GAP, LABELS, WIDTH, MARGIN = 16, 30, 130, 420, 90


def plot(summaries: Sequence[Summary], *, title: str) -> str:
    """An SVG with a group of bars a workload; a system's bar is as long as it is fast."""
    systems = list(dict.fromkeys(line.system for line in summaries))
    workloads = list(dict.fromkeys(line.workload for line in summaries))
    body: list[str] = []
    y = 40
    for workload in workloads:
        lines = [line for line in summaries if line.workload == workload]
        fastest = max(_speed(line) for line in lines)
        body.append(_text(10, y, f"{workload} ({lines[0].headline})", weight="bold"))
        for line in lines:
            y += BAR + 4
            length = max(1.0, WIDTH * _speed(line) / fastest)
            colour = COLOURS[systems.index(line.system) % len(COLOURS)]
            body.append(_text(10, y, line.system))
            body.append(f'<rect x="{LABELS}" y="{y - BAR + 4}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>')
            body.append(_text(LABELS + length + 6, y, figure(line.median)))
        y += GAP
    size = f'width="{LABELS + WIDTH + MARGIN}" height="{y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, background, _text(10, 18, title, weight="bold"), *body, "</svg>", ""])


def _text(x: float, y: float, words: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" font-weight="{weight}">{escape(words)}</text>'
