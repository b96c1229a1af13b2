"""Servers in processes of their own that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launched import Server


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def make(wait: bool = True, **config: object) -> Server:
        started.append(Server(root, tmp_path, **config))  # type: ignore[arg-type]
        if wait:
            assert started[-1].first
        return started[-1]

    yield make
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate(timeout=20)
