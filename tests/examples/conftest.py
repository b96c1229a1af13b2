"""Examples by their names, and the engines that they run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import palmette as pt
from palmette.lang import default


@pytest.fixture(autouse=True)
def examples(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`import tree_of_thought` finds the example."""
    monkeypatch.syspath_prepend(str(root / "examples"))
    yield
    default._default.clear()


@pytest.fixture(scope="module", params=["tiny", pytest.param("smollm2-135m", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[pt.Engine]:
    """The tiny model's, and the default model's (slow)."""
    with pt.Engine(model=request.param, kv_tokens=32768, threads=1) as engine:
        yield engine
