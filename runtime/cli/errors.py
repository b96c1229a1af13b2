"""Errors of a command: one paragraph on stderr and an exit code, a traceback only where `--debug` asks for it."""

from __future__ import annotations

import errno
import functools
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

from palmette.runtime.errors import InvalidRequest, PalmetteError, Unsupported

FAILED, USAGE, INTERRUPTED = 1, 2, 130


@dataclass(slots=True)
class Settings:
    """Of this invocation."""

    debug: bool = False


settings = Settings()


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Errors as a paragraph and an exit code, instead of a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            typer.echo(err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _write_no_more()  # nobody reads: stop quietly
            raise typer.Exit(FAILED) from None
        except OSError as error:  # a full disk, a file that may not be read
            if error.errno == errno.ENOSPC:
                _write_no_more()
            where = f"{error.filename}: " if error.filename is not None else ""
            raise typer.Exit(report(f"{where}{error.strerror or error}.")) from None
        except PalmetteError as error:
            raise typer.Exit(report(str(error), _code(error))) from None

    return run


def report(message: str, code: int = FAILED) -> int:
    """Print one paragraph, with the traceback before it where it was asked for; returns the exit code."""
    if settings.debug:
        traceback.print_exc()
    typer.secho(f"palmette: {message}", err=True, fg=typer.colors.RED if sys.stderr.isatty() else None)
    return code


def _write_no_more() -> None:
    """What is still buffered would fail once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _code(error: PalmetteError) -> int:
    """A value of an option that can't be is wrong usage; the rest are failures."""
    wrong_option = type(error) in (InvalidRequest, Unsupported) and error.param is not None
    return USAGE if wrong_option else FAILED
