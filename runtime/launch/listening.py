"""Where a server listens: an address, or a socket file. Knows sockets only; called by the server and by tests."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from palmette.runtime.errors import InvalidRequest

PROBE_SECONDS = 2.0  # for a server to take a connection, before it counts as one that is busy


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises InvalidRequest naming the address where it is taken or isn't ours."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidRequest(f"Host {host!r} can't be used: {error}.", param="host") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _notice_the_dead(listener)
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


def _notice_the_dead(listener: socket.socket) -> None:
    """Clients whose machine or network is gone say nothing; the system asks them after a minute of silence. Every
    connection has this from its listener."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        option = getattr(socket, name, None)  # not every system has each
        if option is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)


def listen_at(path: Path) -> socket.socket:
    """A socket file that this user alone may use. Raises InvalidRequest where it can't be had.

    A file that a dead server left behind is replaced; one that answers, or is no socket, isn't.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _alone_in(path.parent):
            if os.path.lexists(path):
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


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other server looks for sockets in `folder` meanwhile: two that find the same dead one would each put its own
    in its place, and one of them would never be heard of."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def remove(path: Path, mine: os.stat_result) -> None:
    """Removes the socket file that was `mine`; another server may have put its own in its place meanwhile, which may
    even have the number of the old one."""
    with contextlib.suppress(OSError), _alone_in(path.parent):
        found = path.stat()
        if os.path.samestat(found, mine) and found.st_mtime_ns == mine.st_mtime_ns:
            path.unlink()


def _make_way(path: Path) -> None:
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise InvalidRequest(f"{str(path)!r} is there and is no socket.", hint="Give another path.", param="uds")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:  # nobody listens
            path.unlink()
            return
        except (BlockingIOError, TimeoutError):  # its queue is full: somebody does
            pass
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
