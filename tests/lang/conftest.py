"""A scripted default backend for every test of the language; for those that ask, a real engine with the tiny model."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

import palmette as sgl
from palmette.lang import default
from palmette.lang.backends.base import Backend
from palmette.lang.backends.engine import EngineBackend
from palmette.lang.backends.http import RuntimeEndpoint
from palmette.runtime.api.app import create_app
from palmette.runtime.api.native.branches import BranchTable

sys.path.append(str(Path(__file__).parent))

from lang_helpers import until


@pytest.fixture(autouse=True)
def backend() -> Iterator[sgl.ScriptedBackend]:
    """Answers `<n>` to the n-th byte-length of the prompt, so that each answer tells what came before it."""
    scripted = sgl.ScriptedBackend(lambda prompt: f"[{len(prompt)}]")
    sgl.set_default_backend(scripted)
    yield scripted
    default._default.clear()
    until(lambda: scripted.open_branches == 0)  # no program leaves its branch open


@pytest.fixture(scope="module")
def engine() -> Iterator[sgl.Engine]:
    with sgl.Engine(model="tiny", kv_tokens=16384, threads=1, check_invariants=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def table() -> BranchTable:
    """The branches that `url`'s server holds."""
    return BranchTable()


@pytest.fixture(scope="module")
def url(engine: sgl.Engine, table: BranchTable) -> Iterator[str]:
    """A server over `engine`, in this process."""
    app = create_app(engine.frontend, branches_table=table)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    running = asyncio.run_coroutine_threadsafe(server.serve(), engine.loop)
    while not server.started:
        assert not running.done(), running.exception()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    running.result(10)


@pytest.fixture(scope="module")
def endpoint(url: str) -> Iterator[RuntimeEndpoint]:
    endpoint = RuntimeEndpoint(url)
    yield endpoint
    endpoint.shutdown()


@pytest.fixture(params=["engine", "http"])
def real(request: pytest.FixtureRequest, engine: sgl.Engine) -> Backend:
    """`engine`, in process and over HTTP."""
    return EngineBackend(engine) if request.param == "engine" else request.getfixturevalue("endpoint")
