"""Three agent programs on the default model, and what the radix tree saved them. `make demo` runs this.

python examples/demo.py
"""

# ruff: noqa: E402  (the clock starts before the imports)

from __future__ import annotations

import sys
import textwrap
import time

START = time.monotonic()

from collections.abc import Callable
from dataclasses import dataclass

from few_shot_select import MESSAGES, classify
from multi_turn_chat import TURNS, chat
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tree_of_thought import QUESTIONS, solve

import palmette as sgl
from palmette.lang.usage import ProgramUsage
from palmette.radix_cache.dump import draw
from palmette.runtime.cli.models import fetch_model
from palmette.runtime.config import DEFAULT_MODEL

terminal = Console(highlight=False)
WIDTH = min(100, terminal.width) if terminal.is_terminal else 100
console = Console(width=WIDTH, highlight=False)


@dataclass
class Part:
    """One program of the demo, once it has run."""

    name: str
    usage: ProgramUsage
    seconds: float


@sgl.function
def hello(s):
    s += sgl.user("Say hello.") + sgl.assistant(sgl.gen("text", max_tokens=8, temperature=0.0))


def first_token() -> float:
    """Seconds from the start of this script to the first token of a first request."""
    for _ in hello.run(stream=True).text_iter("text"):
        return time.monotonic() - START
    return time.monotonic() - START


def timed(name: str, program: Callable[[], list[sgl.ProgramState]]) -> tuple[Part, list[sgl.ProgramState]]:
    start = time.monotonic()
    states = program()
    for state in states:
        state.sync()
    usage = sum((state.usage() for state in states), ProgramUsage())
    return Part(name, usage, time.monotonic() - start), states


def counted(program: sgl.Program, items: list[dict], label: str, **options) -> list[sgl.ProgramState]:
    """A batch with a progress bar."""
    columns = (TextColumn("{task.description:34}"), BarColumn(WIDTH - 60), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        states = program.run_batch(items, generator_style=True, **options)
        return list(progress.track(states, total=len(items), description=label))


def run_few_shot() -> Part:
    items = [{"message": message} for message, _ in MESSAGES]
    part, states = timed("few-shot batch", lambda: counted(classify, items, "Sorting messages"))
    right = sum(state["topic"] == topic for state, (_, topic) in zip(states, MESSAGES, strict=True))
    for state, (message, _) in list(zip(states, MESSAGES, strict=True))[:3]:
        console.print(f"  {message[: WIDTH - 28]:{WIDTH - 26}}[bold]{state['topic']}[/bold]")
    console.print(f"  … {right} of {len(MESSAGES)} messages are sorted right (this is a model of 135 M parameters).\n")
    return part


def run_tree_of_thought() -> Part:
    items = [{"question": question} for question, _ in QUESTIONS]
    part, states = timed(
        "tree of thought",
        lambda: counted(solve, items, "Thinking, 3 × 3 branches each", temperature=0.3, seed=1),
    )
    for state, (question, expected) in zip(states, QUESTIONS, strict=True):
        mark = "[green]✓[/green]" if state["vote"] == expected else "[red]✗[/red]"
        answers = ", ".join(answer.strip()[:6] or "–" for answers in state["answer"] for answer in answers)
        console.print(f"  {question}", soft_wrap=True)
        console.print(f"    answers {answers} → vote [bold]{state['vote']}[/bold] {mark}", soft_wrap=True)
    console.print()
    return part


def run_chat() -> Part:
    def talk() -> list[sgl.ProgramState]:
        state = chat.run(TURNS, temperature=0.0, stream=True)
        for number, turn in enumerate(TURNS):
            console.print(f"  [bold]> {turn}[/bold]")
            reply = "".join(state.text_iter(f"reply{number}"))
            lines = textwrap.fill(reply, WIDTH, initial_indent="    ", subsequent_indent="    ")
            console.print(lines, markup=False, soft_wrap=True)
        return [state]

    console.print("Chatting")
    part, _ = timed("multi-turn chat", talk)
    console.print()
    return part


def show(parts: list[Part]) -> None:
    caption = "in tokens; share: of what an unlimited cache could have reused"
    table = Table(
        box=SIMPLE_HEAD,
        collapse_padding=True,
        show_edge=False,
        pad_edge=False,
        caption=caption,
        caption_justify="left",
    )
    table.add_column("program", no_wrap=True)
    for column in ("calls", "prompt", "computed", "reused", "share", "output", "out/s", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    total = Part("all", sum((part.usage for part in parts), ProgramUsage()), sum(part.seconds for part in parts))
    for part in [*parts, total]:
        used = part.usage
        rate = f"{used.completion_tokens / part.seconds:,.0f}" if used.completion_tokens else "–"
        counts = (used.calls, used.prompt_tokens, used.computed_tokens, used.cached_tokens)
        if part is total:
            table.add_section()
        table.add_row(
            part.name,
            *(f"{count:,}" for count in counts),
            f"{used.reuse:.1%}",
            f"{used.completion_tokens:,}",
            rate,
            f"{part.seconds:.1f} s",
        )
    console.print(table)


def main(model: str = DEFAULT_MODEL) -> None:
    console.print(f"[bold]Palmette[/bold]: three programs on {model}, on this machine's CPU.\n")
    fetch_model(model)
    with sgl.Engine(model=model) as engine:
        sgl.set_default_backend(engine)
        seconds = first_token()
        ready = engine.ready
        console.print(
            f"First token {seconds:.1f} s after the start. {ready.threads} threads, {ready.kernels} kernels, "
            f"a KV pool of {ready.kv_tokens:,} tokens.\n"
        )
        show([run_few_shot(), run_tree_of_thought(), run_chat()])
        frontend = engine.frontend
        dump = engine.run(frontend.dump_tree())
        tree = draw(dump.nodes, dump.page_size, frontend.text_of_packed, width=WIDTH, max_lines=28)
        console.print("\n" + tree, markup=False, soft_wrap=True)
        console.print(
            "\nNext: `palmette chat`, `palmette serve`, or write a program of your own: docs/language.md shows how."
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
