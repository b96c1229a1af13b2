"""The machine at hand: its processor, who else uses it, and its limits as a Device of the roofline.

Imports what it needs when it is asked. Used by the commands bench, doctor and roofline.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from palmette.runtime.config import cache_folder
from palmette.runtime.machine import free_memory, usable_threads
from palmette.runtime.roofline.device import Arithmetic, Device

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from palmette.kernels.cpu.limits import Limits

FALLBACK_CACHE = 8 << 20  # where the system doesn't tell the size of the last-level cache
BEYOND_CACHES = 1 << 40  # bytes
BUSY = 0.1  # of the processors' time: more, and figures say little about the machine


@dataclass(frozen=True)
class Load:
    """What runs now. Shares are of all processors' time in the sampled moment; None: this system doesn't tell."""

    average: float | None  # of the last minute, in runnable processes
    busy: float | None
    stolen: float | None  # by other virtual machines

    @property
    def quiet(self) -> bool:
        return (self.busy or 0) + (self.stolen or 0) <= BUSY

    def __str__(self) -> str:
        parts = [] if self.average is None else [f"load average {self.average:.1f}"]
        parts += [] if self.busy is None else [f"{self.busy:.0%} busy"]
        parts += [f"{self.stolen:.0%} stolen by other virtual machines"] if self.stolen else []
        return ", ".join(parts) or "load unknown on this system"


def sample_load(seconds: float = 0.5) -> Load:
    average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    before = _cpu_times()
    if before is None:
        return Load(average, None, None)
    time.sleep(seconds)
    after = _cpu_times() or before
    spent = [late - early for early, late in zip(before, after, strict=True)]
    total = max(1, sum(spent))
    idle, steal = spent[3] + spent[4], spent[7]
    return Load(average, (total - idle - steal) / total, steal / total)


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return found or platform.processor() or platform.machine()


def last_level_cache() -> int:
    """Bytes of the largest cache of the first processor."""
    sizes = [_cache_bytes(path) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=FALLBACK_CACHE)


@dataclass(frozen=True)
class Machine:
    """This machine, measured. `limits` is None where there is no compiler, and torch's rates stand in."""

    threads: int
    limits: Limits | None
    bandwidth: float
    rates: dict[Arithmetic, float]

    def device(self, weight_bytes: float) -> Device:
        """As a device that reads `weight_bytes` a step: caches keep a part of few."""
        bandwidth = self.bandwidth if self.limits is None else self.limits.bandwidth(int(weight_bytes))
        return Device(
            name=f"this machine ({thread_count(self.threads)})",
            bandwidth=bandwidth,
            rates=self.rates,
            memory=free_memory(),
            cache=last_level_cache(),
            integer_weights=True,
        )


def measure_machine(threads: int | None = None, progress: Callable[[str], None] | None = None) -> Machine:
    """Takes some seconds; compiles the measuring loops at the first time."""
    from palmette.kernels.cpu.build import BuildError
    from palmette.kernels.cpu.limits import measure_limits

    threads = threads or usable_threads()
    try:
        limits = measure_limits(cache_folder() / "kernels", threads, progress=progress)
    except (BuildError, OSError):
        return _measured_by_torch(threads)
    rates: dict[Arithmetic, float] = {kind: limits.rates[kind] for kind in limits.rates}
    return Machine(threads, limits, limits.bandwidth(BEYOND_CACHES), rates)


def wide_console() -> Console:
    """Standard output; where that is no terminal, tables get the room that they want."""
    from rich.console import Console

    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=max(found.width, 120))


def thread_count(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _measured_by_torch(threads: int) -> Machine:
    """Lower figures than native loops give, for machines without a compiler."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        data = torch.ones(64 << 20, dtype=torch.float32)
        rates: dict[Arithmetic, float] = {
            "f32": _product_rate(torch.float32),
            "bf16": _product_rate(torch.bfloat16),
        }
        return Machine(threads, None, data.nbytes / best_seconds(data.sum), rates)
    finally:
        torch.set_num_threads(before)


def _product_rate(dtype: torch.dtype, size: int = 1024) -> float:
    import torch

    left, right = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    return 2 * size**3 / best_seconds(lambda: left @ right)


def best_seconds(work: Callable[[], object], seconds: float = 0.4) -> float:
    """The least that `work` takes, tried again for `seconds`."""
    work()
    best, deadline = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def _cpu_times() -> list[int] | None:
    """user, nice, system, idle, iowait, irq, softirq, steal of all processors, in ticks."""
    try:
        return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return None


def _cache_bytes(path: Path) -> int:
    text = path.read_text().strip()
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text or 0)
