"""Where a server listens: an address, or a socket file. Knows sockets only; called by the server and by tests."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from palmette.runtime.errors import InvalidRequest


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises InvalidRequest naming the address where it is taken or isn't ours."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidRequest(f"Host {host!r} can't be used: {error}.", param="host") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise InvalidRequest(
            f"Can't listen on {host}:{port}: {reason}.",
            hint="Stop what uses it, or give another with --port (0 takes a free one).",
            param="port",
        ) from error
    return listener


def listen_at(path: Path) -> socket.socket:
    """A socket file that this user alone may use. Raises InvalidRequest where it can't be had.

    A file that a dead server left behind is replaced; one that answers, or is no socket, isn't.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists():
            _make_way(path)
        previous = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(previous)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise InvalidRequest(
            f"Can't listen on {str(path)!r}: {reason}.", hint="Give another path with --uds.", param="uds"
        ) from error
    except InvalidRequest:
        listener.close()
        raise
    return listener


def _make_way(path: Path) -> None:
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise InvalidRequest(f"{str(path)!r} is there and is no socket.", hint="Give another path.", param="uds")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:  # nobody listens
            path.unlink()
            return
    raise InvalidRequest(
        f"A server listens on {str(path)!r} already.", hint="Stop it, or give another path.", param="uds"
    )


def url_of(listener: socket.socket) -> str:
    """As clients write it; unix:PATH for a socket file."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
