"""What this machine can do at best: the loops of native/limits.cpp, through ctypes.

Best of several short tries, so that another process's time counts as little as it can. Called by runtime/cli.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from palmette.kernels.cpu.build import build, detect_target

SOURCE = "limits.cpp"
LARGE, SMALL = 256 << 20, 96 << 20  # bytes: far beyond the caches, and about the default model's weights
Arithmetic = Literal["f32", "bf16", "int8"]
ARITHMETICS: tuple[Arithmetic, ...] = ("f32", "bf16", "int8")


@dataclass(frozen=True)
class Limits:
    """Bytes and operations (a multiply-add is two) a second. `read` and `read_small` have one entry a thread count."""

    target: str  # the instruction-set path
    threads: int
    read: dict[int, float]  # streaming LARGE bytes
    read_small: dict[int, float]  # streaming SMALL bytes
    copy: float  # bytes read plus bytes written
    rates: dict[Arithmetic, float]  # without those that the path lacks

    def bandwidth(self, size: int) -> float:
        """The best that any number of threads reads of `size` bytes, again and again: caches help with few of them."""
        tables = (self.read, self.read_small) if size < 2 * SMALL else (self.read,)
        return max(rate for table in tables for rate in table.values())


class LimitLoops:
    """The loaded library. Every call takes about `budget` seconds and releases the GIL."""

    def __init__(self, path: Path) -> None:
        self._c = c.CDLL(str(path))
        for name, arguments in (
            ("read", (c.c_void_p, c.c_int64, c.c_int32, c.c_double)),
            ("copy", (c.c_void_p, c.c_void_p, c.c_int64, c.c_int32, c.c_double)),
            ("rate", (c.c_int32, c.c_int32, c.c_double)),
        ):
            function = getattr(self._c, f"palmette_limits_{name}")
            function.restype, function.argtypes = c.c_double, arguments

    def read(self, size: int, threads: int, budget: float) -> float:
        """Bytes a second of streaming `size` bytes (a multiple of 512)."""
        assert size % 512 == 0, "the loop reads 512 bytes at a time"
        data = _touched(size)
        return float(size / self._c.palmette_limits_read(data.ctypes.data, size, threads, budget))

    def copy(self, size: int, threads: int, budget: float) -> float:
        """Bytes read plus bytes written a second of copying `size` bytes (a multiple of 512)."""
        assert size % 512 == 0, "the loop copies 64 bytes at a time"
        source, target = _touched(size), _touched(size)
        source[::4096] = 7
        seconds = self._c.palmette_limits_copy(source.ctypes.data, target.ctypes.data, size, threads, budget)
        assert np.array_equal(source[::512], target[::512]), "the copy is not one"
        return float(2 * size / seconds)

    def rate(self, arithmetic: Arithmetic, threads: int, budget: float) -> float | None:
        """Operations a second, or None where this path has no such instruction."""
        return float(self._c.palmette_limits_rate(ARITHMETICS.index(arithmetic), threads, budget)) or None


def measure_limits(
    folder: Path,
    threads: int,
    *,
    large: int = LARGE,
    small: int = SMALL,
    budget: float = 0.25,
    progress: Callable[[str], None] | None = None,
) -> Limits:
    """Builds the loops in `folder` where they aren't there, and runs them: some seconds in all. Raises BuildError."""
    target = detect_target()
    loops = LimitLoops(build(folder, target, source=SOURCE, progress=progress))
    counts = _thread_counts(threads)
    rates = {kind: loops.rate(kind, threads, budget) for kind in ARITHMETICS}
    return Limits(
        target=target.name,
        threads=threads,
        read={count: loops.read(large, count, budget) for count in counts},
        read_small={count: loops.read(small, count, budget) for count in counts},
        copy=loops.copy(large, threads, budget),
        rates={kind: rate for kind, rate in rates.items() if rate is not None},
    )


def _thread_counts(most: int) -> Iterable[int]:
    """1, 2, 4 … and `most`."""
    return sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})


def _touched(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """`size` bytes at a multiple of 64, written once so that every page is there."""
    memory = np.empty(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    part = memory[start : start + size]
    part[:] = 0x3C
    return part
