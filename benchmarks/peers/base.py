"""What adapters are made of: a virtual environment for each peer, and a server process that surely ends.

Called by the adapters beside it, run.py and tests/peers. Knows no particular system.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.drivers.protocol import Driver
from benchmarks.text import Encode

ROOT = Path(__file__).resolve().parents[2]


class PeerError(Exception):
    """A system can't be installed or started; the message says why and what to do."""


@dataclass(frozen=True)
class Setup:
    """What every system of a comparison gets: the same weights, the same threads.

    `logs`: a folder for server logs. `encode`: the model's tokenizer, for servers that answer with text only.
    """

    model: Path  # a .gguf file
    threads: int
    logs: Path
    encode: Encode


class System(Protocol):
    """Something that can be benchmarked.

    `start` yields a driver once the system answers, and ends it after.
    """

    @property
    def name(self) -> str: ...

    def installed(self) -> bool: ...

    def install(self) -> None:
        """May take long (it says so) and needs the package index. Raises PeerError."""
        ...

    def versions(self) -> dict[str, str]:
        """Package name → version, and whatever else changes the numbers."""
        ...

    def start(self, setup: Setup) -> AbstractAsyncContextManager[Driver]: ...


@dataclass(frozen=True)
class PeerVenv:
    """A virtual environment under .venvs/, so that peers' dependencies never meet ours."""

    folder: Path
    requirements: tuple[str, ...]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Raises PeerError where the environment isn't there."""
        for folder in self.folder.glob("lib/python*/site-packages"):
            return folder
        raise PeerError(f"{self.folder} is no virtual environment; install the peer first (make peers).")

    def version(self, package: str) -> str | None:
        """The installed version of `package`; None where it isn't installed."""
        if not self.folder.is_dir():
            return None
        stem = package.replace("-", "_")
        for info in self.site_packages.glob(f"{stem}-*.dist-info"):
            return info.name.removeprefix(f"{stem}-").removesuffix(".dist-info")
        return None

    def install(self) -> None:
        """Creates the environment and installs the requirements, showing pip's output."""
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)
        self.pip("install", *self.requirements)

    def pip(self, *arguments: str) -> None:
        """Raises PeerError where it fails."""
        command = [str(self.python), "-m", "pip", *arguments]
        if subprocess.run(command).returncode != 0:
            raise PeerError(f"{' '.join(command)} failed; its output is above.")


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def server_process(
    command: Sequence[str],
    *,
    health: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> Iterator[int]:
    """Starts `command`, waits until `health` answers 200, yields the pid; ends its whole process group.

    Raises PeerError with the log's last lines where the process ends or isn't ready in `timeout` seconds.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            list(command),
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
    try:
        _wait_until_ready(process, health, log, timeout)
        yield process.pid
    finally:
        _end_group(process)


def _die_with_parent() -> None:
    """In the child: SIGTERM will come when the parent is gone, even where it was killed."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def _wait_until_ready(process: subprocess.Popen[bytes], health: str, log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not _answers(health):
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        if process.poll() is not None:
            raise PeerError(f"The server ended with code {process.returncode}. Its last lines:\n{tail}")
        if time.monotonic() > deadline:
            raise PeerError(f"The server wasn't ready in {timeout:g} s. Its last lines:\n{tail}")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
            break
    with contextlib.suppress(ProcessLookupError):  # children that outlived their leader
        os.killpg(process.pid, signal.SIGKILL)
