"""Palmette itself, in both ways in which it is used: its server, and its engine in the caller's process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from benchmarks.drivers.engine import EngineDriver
from benchmarks.drivers.openai_server import PalmetteNative, ServerDriver
from benchmarks.drivers.protocol import Driver
from benchmarks.peers.base import ROOT, Setup, free_port, server_process
from benchmarks.quiet import machine
from palmette.runtime.engine import Engine


@dataclass(frozen=True)
class PalmetteServer:
    """`palmette serve` of this tree, in its own processes."""

    name: str = "palmette"

    def installed(self) -> bool:
        return True

    def install(self) -> None:
        """Nothing to do: it is this tree."""

    def versions(self) -> dict[str, str]:
        facts = machine()
        return {"palmette": facts["palmette"], "commit": facts["commit"], "torch": facts["torch"]}

    @contextlib.contextmanager
    def serve(self, setup: Setup) -> Iterator[str]:
        """A running server's URL."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [
            sys.executable, "-c", "from palmette.runtime.cli.app import main; main()", "serve",
            "--model", str(setup.model), "--port", str(port), "--threads", str(setup.threads),
        ]  # fmt: skip
        log = setup.logs / f"{self.name}.log"
        environment = {"PYTHONPATH": str(ROOT / ".src")}
        with server_process(command, health=f"{url}/health", log=log, environment=environment):
            yield url

    @contextlib.asynccontextmanager
    async def start(self, setup: Setup) -> AsyncIterator[Driver]:
        with self.serve(setup) as url:
            driver = ServerDriver(self.name, url, PalmetteNative(), setup.encode, reset_path="/flush_cache")
            try:
                yield driver
            finally:
                await driver.close()


@dataclass(frozen=True)
class EngineInProcess(PalmetteServer):
    """`palmette.Engine` in the benchmark's own process."""

    name: str = "palmette-engine"

    @contextlib.asynccontextmanager
    async def start(self, setup: Setup) -> AsyncIterator[Driver]:
        driver = EngineDriver(self.name, Engine(model=str(setup.model), threads=setup.threads))
        try:
            yield driver
        finally:
            await driver.close()
