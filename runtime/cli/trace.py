"""`palmette trace`: what a recorded program did, as a table, and as a timeline to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palmette.runtime.cli.errors import guarded
from palmette.runtime.cli.this_machine import wide_console
from palmette.runtime.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.table import Table

    from palmette.lang.traces.trace import Trace, TracedCall

TEXT = 26  # characters of a call's text


@guarded
def trace(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="What s.trace().save(FILE) wrote.")],
    timeline: Annotated[
        Path | None, typer.Option("--timeline", help="Write the timeline here: .svg, or .html with the texts.")
    ] = None,
) -> None:
    """Show what a program did: each call's time, tokens computed and reused, and what it waited for."""
    from palmette.lang.traces.timeline import timeline_html, timeline_svg
    from palmette.lang.traces.trace import Trace

    loaded = Trace.load(file)
    if timeline is not None and timeline.suffix not in (".svg", ".html"):
        raise InvalidRequest(f"--timeline {str(timeline)!r} is neither an .svg nor an .html file.", param="timeline")
    console = wide_console()
    if not loaded:
        console.print("The trace has no calls: the program computed nothing before it was saved.")
    console.print(_table(loaded))
    model, tools = loaded.seconds_in("gen", "select", "text", "fork"), loaded.seconds_in("tool")
    console.print(
        f"{len(loaded)} calls in {_ms(loaded.seconds)} ms: {_ms(model)} with the model, {_ms(tools)} in tools,"
        f" {_ms(max(0.0, loaded.seconds - loaded.seconds_in('gen', 'select', 'text', 'fork', 'tool')))} in neither."
    )
    if timeline is not None:
        timeline.write_text(timeline_svg(loaded) if timeline.suffix == ".svg" else timeline_html(loaded))
        console.print(f"The timeline is in {timeline}.")


def _table(trace: Trace) -> Table:
    from rich.table import Table

    table = Table(caption="Times in ms. reused + computed: prompt tokens; first: until the first token.")
    table.add_column("state")
    table.add_column("call", no_wrap=True)
    for name in ("start", "time", "queue", "first", "reused", "computed", "written"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("text", no_wrap=True)
    for call in trace:
        table.add_row(*_cells(call), style="red" if call.failed else None)
    return table


def _cells(call: TracedCall) -> list[str]:
    from rich.markup import escape

    usage = call.usage
    numbers = ["", "", "", "", ""]
    if usage is not None:
        numbers = [
            _ms(usage.queue_seconds),
            _ms(call.first - call.start),
            str(usage.cached_tokens),
            str(usage.computed_tokens),
            str(usage.completion_tokens),
        ]
    text = (call.error or call.text or call.appended).replace("\n", "⏎")
    text = text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"
    name = f"{call.kind} {call.name}".rstrip()
    return [
        call.state.rstrip("/"),
        escape(name),
        _ms(call.start),
        _ms(call.seconds),
        *numbers,
        escape(text),
    ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"
