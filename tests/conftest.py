"""Shared by all tests: our packages come from `.src` (the import name is palmette), never from the root."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# A bare `import lang` would make a second copy of the package beside palmette.lang.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

# The same examples at every run: a red test is red for everybody. Fuzzing at random has its own make targets. On a busy
# machine an example may take long.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# `make sanitize` builds the native kernels with other flags.
if "PALMETTE_TEST_NATIVE_FLAGS" in os.environ:
    from palmette.kernels.cpu import build

    build.FLAGS = (*build.FLAGS, *os.environ["PALMETTE_TEST_NATIVE_FLAGS"].split())


def pytest_sessionfinish() -> None:
    """What tests have left of event loops is destroyed now: at Python's exit some of what its destruction needs is gone
    already. One run of many ended with a fault of CPython 3.11 there, most likely for that; it was not explained."""
    gc.collect()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def slow_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of this process's engines take 20 ms at least, or `param` seconds.

    The tiny model gives ten thousand tokens a second, so no number of tokens is long enough for what a test does
    meanwhile where its thread waits for the processor.
    """
    from palmette.runtime.worker.worker import CpuWorker

    seconds = getattr(request, "param", 0.02)
    forward = CpuWorker.forward

    def slowly(self: CpuWorker, plan: Any) -> Any:
        time.sleep(seconds)
        return forward(self, plan)

    monkeypatch.setattr(CpuWorker, "forward", slowly)


@pytest.fixture
def runtimes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For the pages' programs: a `Runtime` of the default model is one of the tiny model, and ends with the test."""
    import palmette as pt
    from palmette.lang import default

    started: list[pt.Runtime] = []
    real = pt.Runtime

    def start(model: str) -> pt.Runtime:
        assert model == "smollm2-135m"
        started.append(real(model="tiny", kv_tokens=16384, threads=1))
        return started[-1]

    monkeypatch.setattr(pt, "Runtime", start)
    yield
    default._default.clear()
    for runtime in started:
        runtime.shutdown()
