"""What a running Palmette costs beside speed: a start from nothing, memory, and speed beside a busy neighbour.

    python -m benchmarks.footprint [--runs 5]

Start: exec of `palmette generate` to its first byte of text, caches warm. Memory: proportional set size of the server's
processes while 64 requests with a shared prefix run. Neighbour: single-stream decoding while another process keeps one
core busy. Linux only (/proc).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.peers.base import ROOT, free_port, server_process
from benchmarks.quiet import sample_load, wait_until_quiet

COMMAND = [sys.executable, "-c", "from palmette.runtime.cli.app import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / ".src")}
BUSY = "while True: pass"


def first_byte() -> float:
    """Seconds from exec to the first byte of text of `palmette generate`."""
    start = time.perf_counter()
    command = [*COMMAND, "generate", "The capital of France is", "--max-tokens", "8", "--temperature", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT, bufsize=0)
    assert process.stdout is not None
    while not process.stdout.read(1).strip():
        pass
    seconds = time.perf_counter() - start
    process.stdout.read()
    process.wait()
    return seconds


def torch_import() -> float:
    """Seconds that importing torch takes in a fresh interpreter."""
    code = "import time; start = time.perf_counter(); import torch; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def descendants(pid: int) -> list[int]:
    found = [pid]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += descendants(int(child))
    return found


def proportional_megabytes(pid: int) -> float:
    """Proportional set size of one process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def shared_requests(client: httpx.AsyncClient) -> None:
    prefix = [1000 + i * 7 % 30000 for i in range(1000)]
    calls = [
        client.post(
            "/generate",
            json={
                "input_ids": [*prefix, *range(2000 + 50 * i, 2040 + 50 * i)],
                "sampling_params": {"max_new_tokens": 16, "temperature": 0, "ignore_eos": True},
            },
        )
        for i in range(64)
    ]
    for answer in await asyncio.gather(*calls):
        answer.raise_for_status()


async def decode_rate(client: httpx.AsyncClient, tokens: int = 200) -> float:
    """Output tokens a second of one stream."""
    body = {
        "text": "Once upon a time",
        "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
    }
    start = time.perf_counter()
    (await client.post("/generate", json=body)).raise_for_status()
    return tokens / (time.perf_counter() - start)


async def measure(runs: int, console: Console) -> None:
    table = Table("what", "median", "low – high", title="Footprint")

    def add(name: str, values: list[float], unit: str, digits: int = 2) -> None:
        middle = f"{statistics.median(values):.{digits}f} {unit}"
        table.add_row(name, middle, f"{min(values):.{digits}f} – {max(values):.{digits}f}")

    load = wait_until_quiet()
    first_byte()
    starts, imports = [], []
    for _ in range(runs):
        starts.append(first_byte())
        imports.append(torch_import())
    add("exec of `palmette generate` to the first byte", starts, "s")
    add("of it, importing torch (measured apart)", imports, "s")
    port = free_port()
    log = Path(os.environ.get("TMPDIR", "/tmp")) / "palmette-footprint.log"
    command = [*COMMAND, "serve", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with server_process(
        command, health=f"{url}/health", log=log, environment={"PYTHONPATH": str(ROOT / ".src")}
    ) as pid:
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            await shared_requests(client)
            tree = descendants(pid)
            sizes = [proportional_megabytes(each) for each in tree]
            add(f"memory of {len(sizes)} processes (PSS), after 64 shared requests", [sum(sizes)], "MB", 0)
            for each, size in zip(tree, sizes, strict=True):
                name = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:60]
                console.print(f"  {size:6.0f} MB  {name}")
            quiet = [await decode_rate(client) for _ in range(runs)]
            busy = subprocess.Popen([sys.executable, "-c", BUSY])
            try:
                beside = [await decode_rate(client) for _ in range(runs)]
            finally:
                busy.kill()
                busy.wait()
            add("decoding over HTTP, quiet", quiet, "tokens/s", 0)
            add("the same beside a process that keeps a core busy", beside, "tokens/s", 0)
            add("share of the quiet figure", [b / statistics.median(quiet) for b in beside], "", 2)
    console.print(table)
    after = sample_load()
    console.print(f"load average before {load.average}, after {after.average}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    asyncio.run(measure(parser.parse_args().runs, Console(width=100)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
