"""Compiles the native sources for this machine, once, into a cache folder; later starts load what is there.

The library's name is a hash of sources, flags and compiler, so another version never meets a stale build. Knows nothing
of what the sources do. Called by library.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
MAIN = "step.cpp"
COMPILERS = ("c++", "g++", "clang++")
# No fast-math, no contraction: each operation rounds as it is written (design rule 1b).
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-pthread",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)
AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni")
AVX512_BF16 = "avx512bf16"
AVX2 = ("avx2", "fma", "f16c")


class BuildError(Exception):
    """There is no compiler, or it refused the sources. The message says what to do."""


@dataclass(frozen=True)
class Target:
    """An instruction-set path and the flags that select it."""

    name: str  # "avx512-vnni-bf16", "avx512-vnni", "avx2" or "portable"
    flags: tuple[str, ...]


# On x86 without fused multiply-adds the compiler takes minutes over thousands of calls of fma() at -O3, for nothing.
PORTABLE = Target("portable", ("-O1",) if platform.machine() in ("x86_64", "AMD64") else ())


def detect_target() -> Target:
    """The best path that this machine's processor has."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    flags = {flag.replace("avx512_", "avx512") for flag in line.split()}
    if flags.issuperset(AVX512) and flags.issuperset(AVX2):
        chosen = (*(f"-m{flag}" for flag in (*AVX512, *AVX2)), "-mprefer-vector-width=512")
        if AVX512_BF16 in flags:  # its own name: products with bfloat16 weights round otherwise there
            return Target("avx512-vnni-bf16", (*chosen, f"-m{AVX512_BF16}"))
        return Target("avx512-vnni", chosen)
    if flags.issuperset(AVX2):
        return Target("avx2", tuple(f"-m{flag}" for flag in AVX2))
    return PORTABLE


def find_compiler() -> str:
    """The path of a C++ compiler. Raises BuildError where there is none."""
    for name in COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise BuildError("No C++ compiler was found (c++, g++ or clang++). Install one, for example Debian's package g++.")


def source_digest(source: str = MAIN) -> str:
    """Hex SHA-256 of a library's sources: the headers and `source`, the one file that is compiled."""
    found = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix == ".h" or path.name == source:
            found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def library_path(folder: Path, target: Target, *, source: str = MAIN, extra: tuple[str, ...] = ()) -> Path:
    """Where the compiled library lies, or would. Raises BuildError where there is no compiler."""
    command = _command(target, extra)
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False).stdout
    key = hashlib.sha256("\0".join([source_digest(source), version, *command]).encode()).hexdigest()[:16]
    name = "palmette" if source == MAIN else f"palmette-{Path(source).stem}"
    return folder / f"{name}-{target.name}-{key}.so"


def build(
    folder: Path,
    target: Target,
    *,
    source: str = MAIN,
    extra: tuple[str, ...] = (),
    progress: Callable[[str], None] | None = None,
) -> Path:
    """The compiled library in `folder` (made 0700), compiled first where it isn't there. Safe among processes.

    `source`: which of the native sources, `extra`: more flags, for sanitizers. Raises BuildError with the compiler's
    own words.
    """
    library = library_path(folder, target, source=source, extra=extra)
    if library.exists():
        return library
    command = _command(target, extra)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / f"{library.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():  # another process built it while we waited
            return library
        if progress is not None:
            progress(f"Compiling the native kernels ({target.name}), once …")
        partial = library.with_suffix(f".{os.getpid()}.partial")
        try:
            done = subprocess.run(
                [*command, str(SOURCES / source), "-o", str(partial)], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise BuildError(f"{command[0]} could not compile the native kernels:\n{done.stderr.strip()[-2000:]}")
            os.replace(partial, library)
        finally:
            partial.unlink(missing_ok=True)
    return library


def _command(target: Target, extra: tuple[str, ...]) -> list[str]:
    return [find_compiler(), *FLAGS, *target.flags, *extra]
