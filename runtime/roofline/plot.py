"""Line charts with logarithmic axes, as SVG and as text for a terminal.

Knows nothing of what they show. Small on purpose: no plotting library is a dependency. Used by charts.py and the
commands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Point = tuple[float, float]

COLOURS = ("#2f7d4f", "#b5793a", "#5a7fb0", "#9b5f8f", "#6b6b3a", "#b04a4a", "#4a9a9a", "#8a8f98")
SYMBOLS = "ox+*#%@&"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 620, 400, 74, 150, 34, 48


@dataclass(frozen=True)
class Series:
    """Points joined by a line, or only marked. Coordinates above 0."""

    name: str
    points: Sequence[Point]
    line: bool = True
    dashed: bool = False


@dataclass(frozen=True)
class Mark:
    """A point with words at it."""

    at: Point
    words: str


@dataclass(frozen=True)
class Chart:
    """`unit_x`, `unit_y` go behind the axes' figures (1 k, 1 M … of them)."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    unit_x: str = ""
    unit_y: str = ""


@dataclass(frozen=True)
class _Scale:
    """Logarithmic: low … high → 0 … 1."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> _Scale:
        present = [value for value in values if value > 0]
        low, high = min(present), max(present)
        return cls(low, high) if high > low else cls(low / 2, high * 2)

    def with_room(self) -> _Scale:
        """A little more at the top, so that words at the highest point find a place."""
        return _Scale(self.low, self.high * (self.high / self.low) ** 0.06)

    def __call__(self, value: float) -> float:
        return math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        """1, 2 and 5 of each power of ten; powers alone where there are many; every second of them where still."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        digits = (1, 2, 5) if self.high / self.low < 200 else (1,)
        step = 1 + (last - first) // 8
        powers = range(first, last + 1, step)
        found = [digit * 10.0**power for power in powers for digit in digits]
        return [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]


def short(value: float, unit: str = "") -> str:
    """A figure in three digits with k, M, G, T or P: 1500 → "1.5 k"."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def svg(charts: Sequence[Chart], title: str) -> str:
    """The charts beside each other, in one picture."""
    body = [_words(12, 22, title, "start", 15, bold=True)]
    for index, chart in enumerate(charts):
        body += [f'<g transform="translate({index * WIDTH},30)">', *_drawn(chart), "</g>"]
    size = f'width="{WIDTH * len(charts)}" height="{HEIGHT + 30}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>", ""])


def _drawn(chart: Chart) -> list[str]:
    across, up = _scales(chart)
    up = up.with_room()
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def place(point: Point) -> Point:
        return LEFT + across(point[0]) * (right - LEFT), bottom - up(point[1]) * (bottom - TOP)

    out = [_words(LEFT, TOP - 12, chart.title, "start", 13, bold=True)]
    for tick in across.ticks():
        x, _ = place((tick, up.low))
        out.append(_stroke([(x, TOP), (x, bottom)], "#dddddd", 1))
        out.append(_words(x, bottom + 16, short(tick, chart.unit_x), "middle", 11))
    for tick in up.ticks():
        _, y = place((across.low, tick))
        out.append(_stroke([(LEFT, y), (right, y)], "#dddddd", 1))
        out.append(_words(LEFT - 6, y + 4, short(tick, chart.unit_y), "end", 11))
    out.append(_stroke([(LEFT, TOP), (LEFT, bottom), (right, bottom)], "#333333", 1))
    out.append(_words((LEFT + right) / 2, HEIGHT - 12, chart.x, "middle", 12))
    out.append(_words(16, (TOP + bottom) / 2, chart.y, "middle", 12, turned=True))
    for index, series in enumerate(chart.series):
        colour = COLOURS[index % len(COLOURS)]
        points = [place(point) for point in series.points]
        if series.line:
            out.append(_stroke(points, colour, 2, dashed=series.dashed))
        else:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points]
        y = TOP + 8 + 17 * index
        out.append(f'<rect x="{right + 10}" y="{y - 5}" width="12" height="4" fill="{colour}"/>')
        out.append(_words(right + 27, y + 1, series.name, "start", 11))
    for mark in chart.marks:
        x, y = place(mark.at)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="#333333" stroke-width="1.5"/>')
        anchor = "end" if x > (LEFT + right) / 2 else "start"
        out.append(_words(x + (-7 if anchor == "end" else 7), y - 7, mark.words, anchor, 10))
    return out


def _scales(chart: Chart) -> tuple[_Scale, _Scale]:
    points = [point for series in chart.series for point in series.points] + [mark.at for mark in chart.marks]
    return _Scale.over(x for x, _ in points), _Scale.over(y for _, y in points)


def _stroke(points: Sequence[Point], colour: str, width: int, *, dashed: bool = False) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>'


def _words(x: float, y: float, words: str, anchor: str, size: int, *, bold: bool = False, turned: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}{weight}{turn}>{escape(words)}</text>"


def text(chart: Chart, *, width: int = 72, height: int = 16) -> str:
    """The chart in characters: a symbol a series, later ones on top, X where a mark is; a legend below."""
    across, up = _scales(chart)
    grid = [[" "] * width for _ in range(height)]

    def put(point: Point, symbol: str) -> None:
        column, row = round(across(point[0]) * (width - 1)), round(up(point[1]) * (height - 1))
        grid[height - 1 - row][column] = symbol

    for index, series in enumerate(chart.series):
        symbol = SYMBOLS[index % len(SYMBOLS)]
        for point in _filled(series.points, across, up, width) if series.line else series.points:
            put(point, symbol)
    for mark in chart.marks:
        put(mark.at, "X")
    top, bottom = short(up.high, chart.unit_y), short(up.low, chart.unit_y)
    gutter = max(len(top), len(bottom)) + 1
    labels = {0: top, height - 1: bottom}
    lines = [f"{chart.title} ({chart.y})"]
    lines += [f"{labels.get(row, ''):>{gutter}} │{''.join(cells).rstrip()}" for row, cells in enumerate(grid)]
    lines.append(" " * gutter + " └" + "─" * width)
    low, high = short(across.low, chart.unit_x), short(across.high, chart.unit_x)
    middle = chart.x.center(max(0, width - len(low) - len(high)))
    lines.append(" " * (gutter + 2) + low + middle + high)
    lines += [f"  {SYMBOLS[index % len(SYMBOLS)]} {series.name}" for index, series in enumerate(chart.series)]
    lines += [f"  X {mark.words}" for mark in chart.marks]
    return "\n".join(lines)


def _filled(points: Sequence[Point], across: _Scale, up: _Scale, width: int) -> Iterable[Point]:
    """Points of a line, close enough for every column, straight in logarithms."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        steps = 1 + max(round(abs(across(x1) - across(x0)) * width), round(abs(up(y1) - up(y0)) * width))
        for step in range(steps + 1):
            share = step / steps
            yield x0 * (x1 / x0) ** share, y0 * (y1 / y0) ** share
