"""A server in processes of its own over the tiny model, what is asked of it, and waiting for what becomes of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import psutil

PROGRAM = """
import json, resource, sys
from pathlib import Path
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import PalmetteError
from palmette.runtime.launch import serve

def ready(serving):
    print(json.dumps({"url": serving.url, "model": serving.engine.model}), flush=True)

options = json.loads(sys.argv[1])
if options["files"]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (options["files"],) * 2)
try:
    config = EngineConfig(**options["config"])
    uds = Path(options["uds"]) if options["uds"] else None
    names = options["names"]
    sys.exit(serve(
        config, port=options["port"], drain_seconds=options["drain"], on_ready=ready, uds=uds, names=names
    ))
except PalmetteError as error:
    print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)
    sys.exit(3)
"""


class Server:
    """A server in a process of its own."""

    def __init__(
        self,
        root: Path,
        temporary: Path,
        *,
        port: int = 0,
        drain: float = 5,
        uds: Path | None = None,
        names: Sequence[str] = (),
        files: int | None = None,
        **config: object,
    ) -> None:
        """`files`: how many this process may open."""
        given = {"model": "tiny", "threads": 1, "kv_tokens": 4096, **config}
        options = {"config": given, "port": port, "drain": drain, "uds": str(uds or ""), "names": list(names)}
        options["files"] = files
        environment = {**os.environ, "PYTHONPATH": str(root / ".src"), "TMPDIR": str(temporary)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    @cached_property
    def first(self) -> dict[str, Any]:
        """What it says when it can be asked, or can't start."""
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    @property
    def url(self) -> str:
        return str(self.first.get("url", ""))

    def engine(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[0]

    def family(self) -> list[psutil.Process]:
        """The processes that it has started, and those that these have."""
        children: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return children

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20)


def wait_for(found: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.05)


def complete(url: str, **body: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json={"prompt": "def", "max_tokens": 4, **body}, timeout=20)


def open_requests(server: Server) -> int:
    found = re.search(r"palmette_open_requests (\d+)", httpx.get(f"{server.url}/metrics").text)
    assert found is not None
    return int(found[1])


class Asked(threading.Thread):
    """A request under way. `answer`: once it has come; None where the connection was cut."""

    def __init__(self, url: str, **body: object) -> None:
        super().__init__(daemon=True)
        self._url, self._body = url, body
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        with contextlib.suppress(httpx.TransportError):
            self.answer = complete(self._url, **self._body)


def all_gone(processes: Sequence[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=5)
    return not [each for each in alive if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def served(server: Server) -> int:
    """The status of a completion by a client that does as it is told: comes again where it is asked to."""
    for _ in range(20):
        answer = complete(server.url)
        if answer.status_code != 503:
            break
        time.sleep(float(answer.headers["retry-after"]) / 5)
    return answer.status_code
