"""Answers that nobody sees grow: the engine is asked for them in fewer pieces, and they are the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from frontends import make_scripted_frontend, tiny_frontend
from live_server import LiveServer

from palmette.runtime.messages.requests import UNWATCHED_SECONDS, Generate

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {}}}
PATHS = [
    ("/v1/completions", {"prompt": "a", "max_tokens": 3}),
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 3, "n": 2}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 3}),
    ("/v1/messages", {"messages": HELLO, "max_tokens": 3}),
    ("/generate", {"text": ["a", "b"], "sampling_params": {"max_new_tokens": 3}}),
]


@pytest.fixture(scope="module")
def scripted() -> Iterator[LiveServer]:
    with LiveServer(make_scripted_frontend) as server:
        yield server


def asked(server: LiveServer, path: str, body: dict[str, Any]) -> set[float]:
    """The seconds between replies that the engine was asked for."""
    sent = server.frontend.scripted.sent  # type: ignore[attr-defined]
    sent.clear()
    assert httpx.post(f"{server.url}{path}", json=body).status_code == 200
    return {each.reply_seconds for each in sent if isinstance(each, Generate)}


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_what_is_not_streamed_comes_in_fewer_pieces(scripted: LiveServer, path: str, body: dict[str, Any]) -> None:
    assert asked(scripted, path, body) == {UNWATCHED_SECONDS}
    assert asked(scripted, path, {**body, "stream": True}) == {0.0}


def test_what_the_front_itself_may_end_is_not_held_up(scripted: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted.frontend, "context_length", 4096)
    body = {"messages": HELLO, "max_tokens": 3, "tools": [{"type": "function", "function": TOOL}]}
    path = "/v1/chat/completions"
    assert asked(scripted, path, body) == {UNWATCHED_SECONDS}
    assert asked(scripted, path, {**body, "parallel_tool_calls": False}) == {0.0}


def test_the_end_and_an_abort_are_not_waited_for() -> None:
    """Short answers take no longer than they did, and one that is aborted has all that was made until then."""
    with LiveServer(tiny_frontend) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        body = {"text": "a", "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
        http.post("/generate", json=body)
        begun = time.monotonic()
        for _ in range(20):
            assert len(http.post("/generate", json=body).json()["output_ids"]) == 4
        assert time.monotonic() - begun < 20 * UNWATCHED_SECONDS
        answers: list[dict[str, Any]] = []
        long = {"text": "a", "rid": "long", "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}}
        asking = threading.Thread(target=lambda: answers.append(http.post("/generate", json=long).json()))
        asking.start()
        while httpx.post(f"{server.url}/abort", json={"rid": "long"}).json() == {"aborted": 0}:
            time.sleep(0.01)
        asking.join(30)
        (answer,) = answers
        assert answer["meta_info"]["finish_reason"]["type"] == "abort"
        assert len(answer["output_ids"]) == answer["meta_info"]["completion_tokens"]
