"""`make cases`: the acceptance cases (taken from public bug reports) against three real servers of the default model.

Starts the default server, one without the prefix cache and one with a tiny KV pool; runs `run_cases.py` of the folder
that holds the cases with all three; stops them. The cases are data beside this repository (CASES=../shared/cases).
"""

from __future__ import annotations

import argparse
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
MODEL = "smollm2-135m"
SERVERS = {"default": (), "nocache": ("--no-prefix-cache",), "tinykv": ("--kv-tokens", "1536")}
PALMETTE = (sys.executable, "-c", "from palmette.runtime.cli import main; main()")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / ".src")}
START_SECONDS = 300.0
STOP_SECONDS = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(options: Sequence[str], environment: dict[str, str]) -> Iterator[str]:
    """A server process; yields its address once it is ready."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [*PALMETTE, "serve", "--port", url.rpartition(":")[2], *options]
    with subprocess.Popen(command, env=environment) as process:
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cases")
    parser.add_argument("--cases", type=Path, default=ROOT.parent / "shared" / "cases", help="folder of run_cases.py")
    given, others = parser.parse_known_args()
    runner = given.cases / "run_cases.py"
    if not runner.exists():
        parser.error(f"{runner} is not there; CASES=FOLDER names the folder that holds it")
    with contextlib.ExitStack() as stack:
        urls = {name: stack.enter_context(serving(options, ENVIRONMENT)) for name, options in SERVERS.items()}
        alternatives = [f"--alt={name}={url}" for name, url in urls.items() if name != "default"]
        launch = " ".join(["env", f"PYTHONPATH={ROOT / '.src'}", PALMETTE[0], "-c", f"'{PALMETTE[2]}'"])
        command = [
            *(sys.executable, str(runner), "--base-url", urls["default"], "--model", MODEL),
            *(*alternatives, f"--launch-cmd={launch} serve --port {{port}}", "--dsl-module=palmette"),
        ]
        return subprocess.run([*command, *others], env=ENVIRONMENT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
