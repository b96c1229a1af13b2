"""A trace as a picture: a row for each state and for its tools, a bar for each call, from left to right in time.

SVG, or a page of HTML around it with the calls' texts. Knows traces alone; `Trace` has no need of it. Called by
`palmette trace` and by whoever wants the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from palmette.lang.traces.trace import Trace, TracedCall

LEFT, WIDTH, ROW, BAR, TOP = 150, 860, 26, 18, 44
TICKS = 8
COLOURS = {"gen": "#2f7d4f", "select": "#5a7fb0", "tool": "#b5793a", "text": "#8a8f98", "fork": "#9b5f8f"}
WAITING = "#cfd8d2"
FAILED = "#b04a4a"


def timeline_svg(trace: Trace, title: str = "") -> str:
    """The timeline. Pale: until a call's first token; a bar's words show while the pointer is on it."""
    lanes = _lanes(trace)
    seconds = trace.seconds or 1e-6
    height = TOP + ROW * len(lanes) + 40
    body = [
        _words(12, 22, title or _title(trace), "start", 14, bold=True),
        *(_legend()),
    ]
    for tick in range(TICKS + 1):
        x = LEFT + WIDTH * tick / TICKS
        body.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - 34}" stroke="#e4e4e4"/>')
        body.append(_words(x, height - 18, f"{1000 * seconds * tick / TICKS:.3g} ms", "middle", 10))
    for row, (name, calls) in enumerate(lanes):
        y = TOP + ROW * row + (ROW - BAR) / 2
        body.append(_words(LEFT - 8, y + BAR - 5, name, "end", 11))
        body += [bar for call in calls for bar in _bars(call, y, WIDTH / seconds)]
    size = f'width="{LEFT + WIDTH + 30}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>", ""])


def timeline_html(trace: Trace, title: str = "") -> str:
    """The timeline, and what each call appended and wrote, as a page without scripts."""
    rows = "\n".join(_row(call) for call in trace)
    named = escape(title or _title(trace))
    columns = ("call", "ms", "prompt", "reused", "computed", "written", "text")
    headings = "".join(f"<th>{column}</th>" for column in columns)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{named}</title><style>'
        "body{font-family:sans-serif;margin:1.5em}table{border-collapse:collapse;font-size:13px}"
        "td,th{border-bottom:1px solid #ddd;padding:4px 8px;text-align:left;vertical-align:top}"
        "td.n{text-align:right}pre{white-space:pre-wrap;margin:0;max-width:60em}</style></head><body>\n"
        f"{timeline_svg(trace, title)}<table><tr>{headings}</tr>\n{rows}\n</table></body></html>\n"
    )


def _lanes(trace: Trace) -> list[tuple[str, list[TracedCall]]]:
    """Calls by state, and its tools below it; tools that run side by side get a row each."""
    lanes: dict[tuple[str, int], list[TracedCall]] = {}
    for call in trace:
        lane = 0
        if call.kind == "tool":
            lane = 1
            while lanes.get((call.state, lane)) and lanes[call.state, lane][-1].end > call.start + 1e-9:
                lane += 1
        lanes.setdefault((call.state, lane), []).append(call)
    return [
        (f"{state.rstrip('/') or 'program'}{' tools' if lane else ''}", lanes[state, lane])
        for state, lane in sorted(lanes)
    ]


def _bars(call: TracedCall, y: float, scale: float) -> list[str]:
    x, first, end = (LEFT + scale * time for time in (call.start, call.first, call.end))
    colour = FAILED if call.failed else COLOURS[call.kind]
    told = f"<title>{escape(_told(call))}</title>"
    bars = []
    if call.kind in ("gen", "select") and first > x:
        bars.append(_bar(x, y, first - x, WAITING, told))
        x = min(first, end)
    return [*bars, _bar(x, y, max(1.0, end - x), colour, told)]


def _told(call: TracedCall) -> str:
    """What is said of a call in a few words."""
    parts = [f"{call.kind} {call.name}".rstrip(), f"{1000 * call.seconds:.1f} ms"]
    if call.usage is not None:
        parts.append(f"{call.usage.cached_tokens} of {call.usage.prompt_tokens} prompt tokens reused")
        parts.append(f"{call.usage.completion_tokens} written")
        if call.usage.queue_seconds:
            parts.append(f"{1000 * call.usage.queue_seconds:.1f} ms in the queue")
    return ", ".join([*parts, *([call.error] if call.error else []), *([call.where] if call.where else [])])


def _row(call: TracedCall) -> str:
    usage = call.usage
    numbers: Sequence[object] = ("", "", "", "")
    if usage is not None:
        numbers = (usage.prompt_tokens, usage.cached_tokens, usage.computed_tokens, usage.completion_tokens)
    cells = "".join(f'<td class="n">{number}</td>' for number in (f"{1000 * call.seconds:.1f}", *numbers))
    text = f"{escape(call.appended)}<b>{escape(call.text)}</b>{escape(call.error)}"
    return f"<tr><td>{escape(f'{call.kind} {call.name}')}</td>{cells}<td><pre>{text}</pre></td></tr>"


def _title(trace: Trace) -> str:
    about = trace.about.get("task") or trace.about.get("program") or "program"
    return f"{about}: {len(trace)} calls in {1000 * trace.seconds:.1f} ms"


def _legend() -> list[str]:
    out, x = [], LEFT + WIDTH - 330
    for name, colour in (*COLOURS.items(), ("first token", WAITING)):
        out.append(f'<rect x="{x}" y="28" width="10" height="8" fill="{colour}"/>')
        out.append(_words(x + 13, 36, name, "start", 10))
        x += 52
    return out


def _bar(x: float, y: float, width: float, colour: str, inside: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{BAR}" fill="{colour}">{inside}</rect>'


def _words(x: float, y: float, words: str, anchor: str, size: int, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight}>{escape(words)}</text>'
