"""What a comparison says: medians, spreads, ratios and their geometric means; as a table and as a chart (SVG).

Knows no system and takes no times. Called by __main__.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from rich.table import Table

from benchmarks.paper.systems import Outcome
from benchmarks.quiet import Load
from benchmarks.report import QUIET, figure


@dataclass(frozen=True)
class Measurement:
    """One run of one workload on one system; exactly one of `outcome` and `error` is there."""

    system: str
    workload: str
    run: int
    outcome: Outcome | None
    error: str | None
    before: Load

    @property
    def told(self) -> str:
        """In words, for progress."""
        if self.outcome is None:
            return f"failed: {self.error}"
        used = self.outcome.usage
        tokens = f"{used.calls} calls, {used.prompt_tokens} tokens in ({_cached(used.cached_tokens)} cached), "
        ended = "" if self.outcome.whole else f", given up: {self.outcome.ended} of {self.outcome.programs} ended"
        return f"{self.outcome.seconds:6.2f} s  {tokens}{used.completion_tokens} out{ended}"


def _cached(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


@dataclass(frozen=True)
class Summary:
    """One workload on one system: seconds, and tokens of a median run.

    `ratio`: how many times as long as the first system it takes (medians). `bound`: some of its programs were given up,
    so that seconds and ratio are lower bounds.
    """

    workload: str
    system: str
    median: float
    low: float
    high: float
    runs: int
    noisy_runs: int
    calls: float
    prompt_tokens: float
    completion_tokens: float
    reused: float | None  # the share of the prompt tokens
    ratio: float | None
    bound: bool


def summarise(measurements: Sequence[Measurement], systems: Sequence[str]) -> list[Summary]:
    """By workload, then in the order of `systems`, whose first the ratios are about. Failed runs don't count."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in measurements:
        if measurement.outcome is not None:
            groups.setdefault((measurement.workload, measurement.system), []).append(measurement)
    summaries: list[Summary] = []
    for workload in dict.fromkeys(measurement.workload for measurement in measurements):
        first = groups.get((workload, systems[0]))
        ours = statistics.median(_seconds(first)) if first else None
        summaries += [_summary(groups[workload, name], ours) for name in systems if (workload, name) in groups]
    return summaries


def _summary(group: Sequence[Measurement], ours: float | None) -> Summary:
    outcomes = [each.outcome for each in group if each.outcome is not None]
    seconds = _seconds(group)
    median = statistics.median(seconds)
    reused = [
        each.usage.cached_tokens / each.usage.prompt_tokens
        for each in outcomes
        if each.usage.cached_tokens is not None and each.usage.prompt_tokens
    ]
    return Summary(
        workload=group[0].workload,
        system=group[0].system,
        median=median,
        low=min(seconds),
        high=max(seconds),
        runs=len(seconds),
        noisy_runs=sum(1 for each in group if (each.before.busy or 0) > QUIET),
        calls=statistics.median(each.usage.calls for each in outcomes),
        prompt_tokens=statistics.median(each.usage.prompt_tokens for each in outcomes),
        completion_tokens=statistics.median(each.usage.completion_tokens for each in outcomes),
        reused=statistics.median(reused) if reused else None,
        ratio=None if ours is None else median / ours,
        bound=not all(each.whole for each in outcomes),
    )


def _seconds(group: Sequence[Measurement]) -> list[float]:
    return [each.outcome.seconds for each in group if each.outcome is not None]


def geometric_mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values)


@dataclass(frozen=True)
class Goals:
    """`means`: of the ratios, by system; `better`: of the ratios against the better of the other plain clients."""

    means: dict[str, float]
    better: float | None
    short: dict[str, float]  # workloads whose ratio against the better one is below 2


def goals(summaries: Sequence[Summary], rivals: Sequence[str]) -> Goals:
    """Over the workloads that all of `rivals` and the first system have been measured on."""
    ratios: dict[str, dict[str, float]] = {}
    for line in summaries:
        if line.ratio is not None:
            ratios.setdefault(line.workload, {})[line.system] = line.ratio
    whole = {name: each for name, each in ratios.items() if all(rival in each for rival in rivals)}
    if not whole:
        return Goals({}, None, {})
    systems = [name for name in next(iter(whole.values())) if all(name in each for each in whole.values())]
    means = {name: geometric_mean([each[name] for each in whole.values()]) for name in systems}
    if not rivals:
        return Goals(means, None, {})
    better = {name: min(each[rival] for rival in rivals) for name, each in whole.items()}
    return Goals(means, geometric_mean(list(better.values())), {name: r for name, r in better.items() if r < 2})


def table(summaries: Sequence[Summary], *, title: str) -> Table:
    """One row a workload and system."""
    result = Table(title=title, title_justify="left")
    for column in ("workload", "system"):
        result.add_column(column, no_wrap=True)
    for column in ("seconds", "low – high", "runs", "first is", "calls", "in", "reused", "out"):
        result.add_column(column, justify="right", no_wrap=True)
    previous = ""
    for line in summaries:
        if previous and line.workload != previous:
            result.add_section()
        more = ">" if line.bound else ""
        result.add_row(
            line.workload if line.workload != previous else "",
            line.system,
            f"{more}{figure(line.median)}",
            f"{figure(line.low)} – {figure(line.high)}",
            f"{line.runs}" + (f" ({line.noisy_runs} noisy)" if line.noisy_runs else ""),
            "" if line.ratio is None or line.ratio == 1 else f"{more}{line.ratio:.2f}× faster",
            f"{line.calls:.0f}",
            f"{line.prompt_tokens:,.0f}",
            "?" if line.reused is None else f"{line.reused:.2f}",
            f"{line.completion_tokens:,.0f}",
        )
        previous = line.workload
    return result


COLOURS = ("#2f7d4f", "#8a8f98", "#b5793a", "#5a7fb0", "#9b5f8f", "#6b6b3a")
BAR, GROUP, HEIGHT, LEFT, TOP, BOTTOM = 16, 24, 260, 50, 60, 110


def chart(summaries: Sequence[Summary], systems: Sequence[str], *, title: str) -> str:
    """An SVG: for each workload a bar a system, its throughput as a share of the first system's."""
    names = list(dict.fromkeys(line.workload for line in summaries))
    found = {(line.workload, line.system): line for line in summaries}
    width = LEFT + len(names) * (len(systems) * BAR + GROUP) + 20
    top = max([1.0, *(1 / line.ratio for line in summaries if line.ratio)])
    body = [_text(10, 20, title, weight="bold")]
    for number, system in enumerate(systems):
        x = 10 + number * 170
        body += [_bar(x, 32, 12, 12, number), _text(x + 17, 42, system)]
    for share in (0.25, 0.5, 0.75, 1.0):
        y = TOP + HEIGHT * (1 - share / top)
        body.append(f'<line x1="{LEFT}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        body.append(_text(10, y + 4, f"{share:.2f}"))
    x = float(LEFT + GROUP / 2)
    for name in names:
        start = x
        for number, system in enumerate(systems):
            line = found.get((name, system))
            if line is not None and line.ratio:
                height = HEIGHT / line.ratio / top
                body.append(_bar(x, TOP + HEIGHT - height, BAR - 2, height, number))
                if line.ratio > 1:
                    label = f"{'>' if line.bound else ''}{line.ratio:.1f}×"
                    body.append(_text(x + 11, TOP + HEIGHT - height - 4, label, turn=-90))
            x += BAR
        body.append(_text(start + 4, TOP + HEIGHT + 14, name, turn=35))
        x += GROUP
    size = f'width="{width}" height="{TOP + HEIGHT + BOTTOM}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>", ""])


def _bar(x: float, y: float, width: float, height: float, number: int) -> str:
    colour = COLOURS[number % len(COLOURS)]
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(x: float, y: float, words: str, *, weight: str = "normal", turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}"{turned}>{escape(words)}</text>'
