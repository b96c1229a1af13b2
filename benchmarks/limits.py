"""What this machine can do at best, by torch: memory bandwidth and matrix rates.

    python -m benchmarks.limits --threads 2

A floor for the true limits (a native streaming loop reads faster than torch's sum); good enough to say how
far away a figure is. Called by run.py.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.quiet import wait_until_quiet
from palmette.runtime.cli.this_machine import best_seconds


@dataclass(frozen=True)
class Limits:
    """Best of several tries; bytes and operations (a multiply-add is two) a second.

    None: torch refused it.
    """

    threads: int
    read: float
    copy: float  # bytes read plus bytes written
    float32: float
    bfloat16: float
    int8: float | None

    @property
    def bandwidth(self) -> float:
        return max(self.read, self.copy)

    @property
    def matrix_rate(self) -> float:
        return max(self.float32, self.bfloat16, self.int8 or 0)


def measure_limits(threads: int, *, megabytes: int = 512, size: int = 2048, seconds: float = 1.0) -> Limits:
    """Takes about `seconds` for each of five figures. Leaves torch's thread count as it found it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        source = torch.ones(megabytes * 2**20 // 4, dtype=torch.float32)
        target = torch.empty_like(source)
        nbytes = source.numel() * 4
        return Limits(
            threads=threads,
            read=nbytes / best_seconds(lambda: source.sum(), seconds),
            copy=2 * nbytes / best_seconds(lambda: target.copy_(source), seconds),
            float32=_matrix_rate(torch.float32, size, seconds),
            bfloat16=_matrix_rate(torch.bfloat16, size, seconds),
            int8=_int8_rate(size, seconds),
        )
    finally:
        torch.set_num_threads(before)


def _matrix_rate(dtype: torch.dtype, size: int, seconds: float) -> float:
    left, right = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    return 2 * size**3 / best_seconds(lambda: left @ right, seconds)


def _int8_rate(size: int, seconds: float) -> float | None:
    left = torch.ones(size, size, dtype=torch.int8)
    right = torch.ones(size, size, dtype=torch.int8)
    try:
        return 2 * size**3 / best_seconds(lambda: torch._int_mm(left, right), seconds)
    except RuntimeError:  # not every build of torch has it
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    load = wait_until_quiet()
    limits = measure_limits(arguments.threads)
    table = Table(title=f"limits of this machine, {limits.threads} threads, by torch {torch.__version__}")
    table.add_column("what")
    table.add_column("a second", justify="right")
    for name, value in asdict(limits).items():
        if name != "threads":
            unit = "GB" if name in ("read", "copy") else "G operations"
            table.add_row(name, "not available" if value is None else f"{value / 1e9:.1f} {unit}")
    console = Console()
    console.print(table)
    console.print(f"busy before: {load.busy}, stolen: {load.stolen}")


if __name__ == "__main__":
    main()
