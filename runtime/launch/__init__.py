"""Starts a server: a front process and the engine process that it keeps up. `serve` is what the command line calls."""

from palmette.runtime.launch.server import DEFAULT_HOST, DEFAULT_PORT, Serving, serve

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "Serving", "serve"]
