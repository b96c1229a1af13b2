"""A real server on a loopback socket over a scripted engine, and one over the tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from frontends import make_scripted_frontend, tiny_frontend
from live_server import LiveServer

from palmette.runtime.frontend import Frontend


@pytest.fixture(scope="package")
def server() -> Iterator[LiveServer]:
    with LiveServer(make_scripted_frontend) as live:
        yield live


@pytest.fixture(scope="package")
def tiny() -> Iterator[LiveServer]:
    with LiveServer(tiny_frontend) as live:
        yield live


@pytest.fixture
def scripted_frontend() -> Callable[[], Frontend]:
    return make_scripted_frontend
