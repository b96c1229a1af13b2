"""`palmette serve` in a process of its own, for checks that want a whole server: make targets, and slow tests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
PALMETTE = (sys.executable, "-c", "from palmette.runtime.cli import main; main()")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / ".src")}
START_SECONDS = 300.0
STOP_SECONDS = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(options: Sequence[str]) -> Iterator[str]:
    """A server process; yields its address once it is ready."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [*PALMETTE, "serve", "--port", url.rpartition(":")[2], *options]
    with subprocess.Popen(command, env=ENVIRONMENT) as process:
        try:
            wait_ready(url, process)
            yield url
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()


def wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + START_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"The server at {url} did not become ready (exit status {process.poll()!r}).")
