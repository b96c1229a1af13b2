"""The native kernels on each instruction-set path that this machine runs, for tests.

Built once, where the program keeps its own. Used by the tests of the kernels and of the sampler, and by sanitize.py.
"""

from __future__ import annotations

import pytest

from palmette.kernels.cpu.build import (
    AVX2,
    AVX512_BF16,
    PORTABLE,
    BuildError,
    Target,
    build,
    detect_target,
    find_compiler,
)
from palmette.kernels.cpu.library import Library
from palmette.runtime.config import cache_folder

COMPILES_LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]
"""For a test that wants another path than the best: on a busy machine its compilation takes minutes."""


def native_paths() -> list[Target]:
    """Every path that this machine can run, the best last."""
    best = detect_target()
    paths = [PORTABLE]
    if best.name != "portable":
        paths.append(Target("avx2", tuple(f"-m{flag}" for flag in AVX2)))
    if best.name == "avx512-vnni-bf16":
        paths.append(Target("avx512-vnni", tuple(flag for flag in best.flags if flag != f"-m{AVX512_BF16}")))
    return paths if best.name == paths[-1].name else [*paths, best]


def native_library(target: Target | None = None) -> Library:
    """The library on a path (the best), compiled where it isn't there. Skips the test where there is no compiler."""
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    return Library(build(cache_folder() / "kernels", target or detect_target()))
