"""Waits until nobody else uses the machine, and says which machine it is.

A benchmark beside a compiler measures the compiler. Linux only (/proc); elsewhere nothing is waited for, and
the record says so. Called by run.py, overhead.py and limits.py.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

STAT = Path("/proc/stat")
INSTRUCTION_SETS = (
    "avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16", "asimd", "sve",
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """What else ran. Shares are of all cores in the sampled second; None: this system doesn't tell."""

    average: tuple[float, float, float] | None
    busy: float | None
    stolen: float | None  # by other virtual machines


def sample_load(seconds: float = 1.0) -> Load:
    average = os.getloadavg() if hasattr(os, "getloadavg") else None
    if not STAT.exists():
        return Load(average, None, None)
    before = _cpu_times()
    time.sleep(seconds)
    spent = [after - earlier for earlier, after in zip(before, _cpu_times(), strict=True)]
    total = max(1, sum(spent))
    idle, steal = spent[3] + spent[4], spent[7]
    return Load(average, 1 - idle / total, steal / total)


def wait_until_quiet(busy: float = 0.06, timeout: float = 120) -> Load:
    """Samples second by second until at most `busy` of the cores' time is used; returns the last sample.

    After `timeout` seconds it returns a busy sample too: the caller records it, and the table marks the run.
    """
    deadline = time.monotonic() + timeout
    while True:
        load = sample_load()
        if load.busy is None or load.busy <= busy or time.monotonic() > deadline:
            return load


def _cpu_times() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all cores, in ticks."""
    return [int(field) for field in STAT.read_text().split("\n", 1)[0].split()[1:9]]


def machine() -> dict[str, str]:
    """What a reader must know to compare: processor, instruction sets, cores, memory, commit, versions."""
    facts = {
        "cpu": _cpu_model(),
        "isa": " ".join(_instruction_sets()),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": _commit(),
    }
    for package in ("palmette", "torch", "numpy", "tokenizers", "msgspec"):
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def _cpu_field(name: str) -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _cpu_model() -> str:
    model = _cpu_field("model name") or platform.processor() or platform.machine()
    return f"{model}, family {_cpu_field('cpu family')} model {_cpu_field('model	')}".removesuffix(
        ", family  model "
    )


def _instruction_sets() -> list[str]:
    flags = set((_cpu_field("flags") or _cpu_field("Features")).split())
    return [name for name in INSTRUCTION_SETS if name in flags]


def _commit() -> str:
    """The commit of this tree, with "+" behind it where tracked files differ from it."""
    root = Path(__file__).resolve().parents[1]
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()
