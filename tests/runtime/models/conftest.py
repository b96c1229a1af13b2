"""The tiny model is quicker on one thread; tests that want more say so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from palmette.kernels.portable.row_blocks import threads


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with threads(1):
        yield
