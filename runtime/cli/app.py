"""The `palmette` command: its options, and what its commands are.

One of the few modules that know every part; it imports them only when a command needs them, so that help is quick.
Errors are one paragraph on stderr. Exit codes: 0, 1 for a failure, 2 for wrong usage, 130 for Ctrl-C.
"""

from __future__ import annotations

from typing import Annotated

import typer

from palmette.runtime.cli.bench import bench
from palmette.runtime.cli.doctor import doctor
from palmette.runtime.cli.errors import settings
from palmette.runtime.cli.grammar import commands as grammar
from palmette.runtime.cli.models import commands as models
from palmette.runtime.cli.roofline import roofline
from palmette.runtime.cli.run import run
from palmette.runtime.cli.serve import serve
from palmette.runtime.cli.simulate import simulate
from palmette.runtime.cli.talk import chat, generate
from palmette.runtime.cli.trace import trace

app = typer.Typer(
    name="palmette",
    help="A radix-tree structured generation runtime for multi-call agent programs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(models, name="models")
app.add_typer(grammar, name="grammar")

for command in (run, serve, generate, chat, bench, doctor, roofline, simulate, trace):
    app.command()(command)


def main() -> None:
    """The entry point of the `palmette` console script."""
    app(prog_name="palmette")


def print_version(wanted: bool) -> None:
    if wanted:
        import palmette

        typer.echo(f"palmette {palmette.__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=print_version),
    ] = False,
) -> None:
    settings.debug = debug
