"""What this process may use: threads (affinity and cgroup quota) and memory (free, cgroup limits counted).

A leaf. Linux reads /proc and /sys; elsewhere the plain figures of the standard library serve.
"""

from __future__ import annotations

import os
from pathlib import Path

FALLBACK_MEMORY = 4 << 30  # where the platform does not tell


def usable_threads() -> int:
    """Processors of the affinity mask, at most the cgroup's CPU quota (rounded up), at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota()
    return max(1, min(cores, quota) if quota is not None else cores)


def free_memory() -> int:
    """Bytes that can still be taken: the kernel's estimate, at most what the cgroup has left."""
    free = _mem_available()
    left = _cgroup_memory_left()
    return min(free, left) if left is not None else free


def _cpu_quota() -> int | None:
    text = _read("/sys/fs/cgroup/cpu.max")
    if text is not None:
        quota, period = text.split()
    else:
        quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") or "max"
        period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us") or "100000"
    if quota in ("max", "-1"):
        return None
    return -(-int(quota) // int(period))


def _mem_available() -> int:
    text = _read("/proc/meminfo")
    if text is not None:
        for line in text.splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return FALLBACK_MEMORY


def _cgroup_memory_left() -> int | None:
    for limit_file, usage_file in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        limit, usage = _read(limit_file), _read(usage_file)
        if limit is not None and usage is not None and limit != "max":
            return max(0, int(limit) - int(usage))
    return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
