"""The `palmette` command."""

from palmette.runtime.cli.app import main

__all__ = ["main"]
