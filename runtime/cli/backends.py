"""Where a command's calls go: a server that is running, or an engine of this process. Used by run.py and talk.py."""

from __future__ import annotations

import signal
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palmette.runtime.cli.models import fetch_model
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palmette.lang.backends.base import Backend

Url = Annotated[
    str | None,
    typer.Option("--url", help="Use the server at this address instead of an engine in this process."),
]
ApiKey = Annotated[str | None, typer.Option("--api-key", help="The server's key.")]


@contextmanager
def engine_or_server(
    url: str | None, api_key: str | None, given: dict[str, Any], *, quiet: bool = True
) -> Iterator[Backend]:
    """The server at `url`, or an engine of this process that starts when it is first needed."""
    if url is not None:
        if given:
            raise InvalidRequest(
                f"--{min(given).replace('_', '-')} is an option of an engine, and --url names a running server.",
                hint="Give one or the other.",
                param=min(given),
            )
        from palmette.lang.backends.http import RuntimeEndpoint

        yield RuntimeEndpoint(url, api_key)
        return
    if api_key is not None:
        raise InvalidRequest("--api-key needs --url: an engine in this process has no key.", param="api_key")
    from palmette.runtime.cli.terminal import EngineOnDemand

    backend = EngineOnDemand(lambda: _start_engine(EngineConfig(**given)))
    if quiet:
        backend.start()
    try:
        yield backend
    finally:
        with _no_second_interrupt():
            backend.stop()


def _start_engine(config: EngineConfig) -> Any:
    """An engine, with what it is doing on stderr (a terminal only)."""
    fetch_model(config.model)
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"Loading {config.model} …") if console.is_terminal else _nothing():
        from palmette.runtime.engine import Engine

        return Engine(config)


def is_of_the_engine_start(error: Exception) -> bool:
    """Whether the engine could not be started: the command's options are wrong, not the program."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code is _start_engine.__code__ for frame in frames)


@contextmanager
def _no_second_interrupt() -> Iterator[None]:
    """A second Ctrl-C while the engine stops would leave its thread behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
