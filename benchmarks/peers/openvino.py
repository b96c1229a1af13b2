"""OpenVINO GenAI's continuous batching on the CPU, from the package `openvino-genai`, on the same weights.

Two forms of them. `openvino`: 8 bits, a scale and a zero point for each output channel, made from the file's
dequantised weights. `openvino-gguf`: the file itself, which OpenVINO reads, Q4_1 too: it keeps 4 bits in groups of 32,
but rounds a group's zero point to a whole number of steps, so the weights are visibly others: greedy continuations of
the default model part from everybody else's within a few tokens. Only the first is the same model.

OpenVINO Model Server isn't in the package index: openvino_server.py is the HTTP in front of the library.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drivers.openai_server import OpenAICompletions, ServerDriver
from benchmarks.drivers.protocol import Driver
from benchmarks.peers.base import ROOT, PeerError, PeerVenv, Setup, free_port, server_process
from benchmarks.peers.export import export_float16, export_place

VENV = PeerVenv(ROOT / ".venvs" / "openvino", ("openvino-genai>=2026.4", "nncf", "uvicorn", "httptools"))
SERVER = Path(__file__).with_name("openvino_server.py")
CONVERT = Path(__file__).with_name("openvino_convert.py")


@dataclass(frozen=True)
class OpenVinoServer:
    """What isn't named stays as OpenVINO has it: bfloat16 products where the CPU has them, 8-bit KV."""

    name: str = "openvino"
    weights: str = "int8 by channel"
    venv: PeerVenv = VENV

    def installed(self) -> bool:
        return all(self.venv.version(package) is not None for package in ("openvino-genai", "nncf", "uvicorn"))

    def install(self) -> None:
        """Half a gigabyte of packages on disk; needs no compiler."""
        if not self.installed():
            self.venv.install()

    def versions(self) -> dict[str, str]:
        packages = ("openvino-genai", "openvino", "nncf")
        return {"weights": self.weights, **{name: self.venv.version(name) or "not installed" for name in packages}}

    def model(self, setup: Setup) -> Path:
        """What the server is given. Converts now (half a minute) where that hasn't been done for this file."""
        folder = export_place(setup.model, ".openvino-int8")
        if not folder.is_dir():
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            self._run(CONVERT, str(export_float16(setup.model)), str(partial))
            partial.rename(folder)
        return folder

    def _run(self, script: Path, *arguments: str) -> None:
        done = subprocess.run(self.script(script, *arguments), capture_output=True, text=True)
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
            raise PeerError(f"{script.name} ended with code {done.returncode}. Its last lines:\n{tail}")

    def script(self, script: Path, *arguments: str) -> list[str]:
        """A command line. -P keeps the script's own folder off sys.path, where this very file would be `openvino`."""
        return [str(self.venv.python), "-P", str(script), *arguments]

    @contextlib.asynccontextmanager
    async def start(self, setup: Setup) -> AsyncIterator[Driver]:
        model, port = self.model(setup), free_port()
        url = f"http://127.0.0.1:{port}"
        options = ["--model", str(model), "--port", str(port), "--threads", str(setup.threads)]
        log = setup.logs / f"{self.name}.log"
        with server_process(self.script(SERVER, *options), health=f"{url}/health", log=log):
            driver = ServerDriver(self.name, url, OpenAICompletions("model"), setup.encode)
            try:
                yield driver
            finally:
                await driver.close()


@dataclass(frozen=True)
class OpenVinoGgufServer(OpenVinoServer):
    """Reads the file as it is."""

    name: str = "openvino-gguf"
    weights: str = "the file's 4 bits, zero points rounded"

    def model(self, setup: Setup) -> Path:
        return setup.model
