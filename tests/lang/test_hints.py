"""What a program knows of its future reaches the cache: in process, over HTTP, and never at the cost of a program."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from lang_helpers import until
from live_server import LiveServer

import palmette as sgl
from palmette import function, gen
from palmette.lang.backends.http import RuntimeEndpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import LocalLink
from palmette.runtime.messages.hints import BranchHint

cores: list[Any] = []


def _frontend() -> Frontend:
    config = EngineConfig(model="tiny", kv_tokens=4096, threads=1)
    cores.append(build_core(config, resolve("tiny")))
    return build_frontend(config, resolve("tiny"), LocalLink(cores[-1]))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with LiveServer(_frontend) as server:
        yield server.url


@function
def waits(s):
    s += "Look this up for me, please: " + gen("call", max_tokens=20)
    s.sync()
    s.hint(pin_seconds=30, tool_wait_seconds=2.5, next_use_seconds=2.5)
    s.sync()
    s["pinned"] = _pinned()
    s.hint(pin_seconds=0)
    s += "It was found. " + gen("answer", max_tokens=4)


def _pinned() -> int:
    time.sleep(0.1)
    return cores[-1]._cache.pinned_pages if cores else 0


@pytest.mark.server
def test_a_hint_pins_what_the_branch_holds_over_http(url: str) -> None:
    endpoint = RuntimeEndpoint(url)
    state = waits.run(backend=endpoint, seed=1)
    state.sync()
    assert state["pinned"] >= 1
    until(lambda: cores[-1]._cache.pinned_pages == 0)
    endpoint.shutdown()


def test_hints_are_sent_in_order(backend: sgl.ScriptedBackend) -> None:
    state = waits()
    state.sync()
    verbs = [(verb, what) for verb, what in backend.calls if verb in ("hint", "generate")]
    assert [verb for verb, _ in verbs] == ["generate", "hint", "hint", "generate"]
    assert verbs[1][1] == BranchHint(pin_seconds=30, tool_wait_seconds=2.5, next_use_seconds=2.5)


def test_a_hint_about_nothing_does_nothing(backend: sgl.ScriptedBackend) -> None:
    @function
    def program(s):
        s.hint(last_use=True)
        s += "text"

    assert program().text() == "text"
    assert not [verb for verb, _ in backend.calls if verb == "hint"]


@pytest.mark.parametrize("wrong", [{"pin_seconds": -1}, {"next_use_seconds": float("nan")}])
def test_a_time_that_is_none_is_refused_where_it_is_written(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match="is not a number of seconds"):
        function(lambda s: s.hint(**wrong)).run()
