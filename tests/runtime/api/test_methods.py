"""HEAD, methods that a path hasn't, models for both clients, Retry-After, and values that the wire can't hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from frontends import make_scripted_frontend
from live_server import LiveServer

from palmette.runtime.api.app import ApiOptions
from palmette.runtime.api.errors import LONGEST_RETRY, retry_seconds
from palmette.runtime.api.limits import Limits
from palmette.runtime.api.openai.answers import ModelCard, ModelList
from palmette.runtime.errors import EngineDied, Overloaded
from palmette.runtime.frontend import calls
from palmette.runtime.frontend.calls import UNKNOWN_SECONDS, DrainRate


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/v1/models", "/v1/models/tiny", "/metrics", "/docs", "/openapi.json"]
)
def test_head_says_what_get_would(http: httpx.Client, path: str) -> None:
    head, get = http.head(path), http.get(path)
    assert head.status_code == get.status_code == 200
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.content == b""
    if path not in ("/metrics", "/health"):  # their numbers change
        assert head.headers["content-length"] == get.headers["content-length"]
    assert http.head("/v1/models/none").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/completions", "POST"),
        ("HEAD", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/models", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
        ("PATCH", "/v1/responses/resp_1", "DELETE, GET, HEAD"),
        ("OPTIONS", "/v1/messages", "POST"),
        ("TRACE", "/generate", "POST"),
    ],
)
def test_a_method_that_there_is_not_is_answered_with_those_that_there_are(
    http: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = http.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("POST", "/chat/completions", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/chat/completions", "/v1/chat/completions"),
        ("POST", "/v1/v1/messages", "/v1/messages"),
        ("POST", "/api/v1/responses", "/v1/responses"),
        ("GET", "/models", "/v1/models"),
        ("POST", "/v1/moderations", None),
        ("GET", "/chat/completions", None),
        ("POST", "/a" * 2000 + "/completions", None),
    ],
)
def test_a_path_of_a_wrong_base_url_is_answered_with_the_right_one(
    http: httpx.Client, method: str, path: str, meant: str | None
) -> None:
    answer = http.request(method, path)
    assert answer.status_code == 404
    message = answer.json()["error"]["message"]
    assert (f"Did you mean {meant}?" in message) if meant else ("Did you mean" not in message)


MESSAGES = [{"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/v1/chat/completions", {"tools": [{"type": "function", "name": "f"}]}, "'function': {'name'"),
        ("/v1/messages", {"tools": [{"name": "f", "parameters": {}}], "max_tokens": 1}, "'input_schema'"),
        ("/v1/messages", {"tools": [{"type": "function", "function": {"name": "f"}}], "max_tokens": 1},
         "how OpenAI writes it; here it is {'name'"),
        ("/v1/chat/completions",
         {"response_format": {"type": "json_schema", "json_schema": {"type": "object", "properties": {}}}},
         "in 'schema'"),
    ],
)  # fmt: skip
def test_what_stands_where_another_api_has_it_is_said_where_it_goes(
    http: httpx.Client, path: str, fields: dict[str, Any], words: str
) -> None:
    answer = http.post(path, json={"messages": MESSAGES, **fields})
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert words in message


def test_models_for_clients_of_either_kind(tiny: LiveServer) -> None:
    ours = openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none")
    theirs = anthropic.Anthropic(base_url=tiny.url, api_key="none")
    assert [card.id for card in ours.models.list()] == ["tiny"]
    (card,) = theirs.models.list(limit=5)
    assert (card.id, card.display_name, card.type, card.lifecycle) == ("tiny", "tiny", "model", "active")
    assert card.created_at.year >= 2024
    one = theirs.models.retrieve("tiny")
    assert one.max_input_tokens == ours.models.retrieve("tiny").model_dump()["max_model_len"]
    ModelList.model_validate(httpx.get(f"{tiny.url}/v1/models").json())
    ModelCard.model_validate(httpx.get(f"{tiny.url}/v1/models/tiny").json())


LARGE = "x" * (100 << 10)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/generate"])
@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 2**65, 10**100, -(10**100)])
@pytest.mark.parametrize("padding", ["", LARGE], ids=["small", "large"])
def test_seeds_beyond_64_bits_are_refused_alike(http: httpx.Client, path: str, seed: int, padding: str) -> None:
    body: dict[str, Any] = {"max_tokens": 1, "seed": seed, "user": padding or None}
    match path:
        case "/generate":
            body |= {"text": "a"}
            body.pop("user")
            body["cache_salt"] = padding or None
        case "/v1/completions":
            body |= {"prompt": "a"}
        case _:
            body |= {"messages": [{"role": "user", "content": "a"}]}
    answer = http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert "seed" in answer.json()["error"]["message"]


@pytest.mark.parametrize("field", ["priority", "max_tokens", "min_tokens", "top_k", "n"])
def test_no_whole_number_is_larger_in_a_large_body(http: httpx.Client, field: str) -> None:
    for value in (2**64, 2**70, 10**400):
        answer = http.post("/v1/completions", content=json.dumps({"prompt": "a", "user": LARGE, field: value}))
        assert answer.status_code == 400, answer.text


def test_a_body_that_is_too_large_is_told_the_limit() -> None:
    options = ApiOptions(limits=Limits(body_bytes=2048))
    with LiveServer(make_scripted_frontend, options=options) as server:
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a" * 3000})
        chunked = httpx.post(f"{server.url}/v1/messages", content=iter([b" " * 3000]))
    assert answer.status_code == chunked.status_code == 413
    assert "2048" in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] == "BodyTooLarge"
    assert "2048" in chunked.json()["error"]["message"]


def test_a_queue_that_drains_says_when(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(calls.time, "monotonic", lambda: clock[0])
    rate = DrainRate()
    assert rate.seconds_for(1000) == UNKNOWN_SECONDS
    for _ in range(100):
        clock[0] += 0.1
        rate.note(50)  # 500 a second
    assert rate.seconds_for(5000) == pytest.approx(10, rel=0.1)
    for _ in range(600):
        clock[0] += 0.1
        rate.note(500)
    assert rate.seconds_for(5000) == pytest.approx(1, rel=0.1)
    clock[0] += 60  # nothing leaves any more
    assert rate.seconds_for(5000) > 100


def test_retry_after_is_whole_seconds_within_limits() -> None:
    assert retry_seconds(Overloaded("x")) == 1
    error = EngineDied("x")
    for given, said in ((0.2, 1), (3.2, 4), (1e9, LONGEST_RETRY)):
        error.retry_after = given
        assert retry_seconds(error) == said


def test_a_full_queue_says_when_there_is_room(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveServer(make_scripted_frontend) as own:
        own.frontend.scripted.go.clear()  # type: ignore[attr-defined]  # an output stops after its first reply
        opened = own.frontend._calls
        opened._most_queued = 1
        opened._queued = 30
        monkeypatch.setattr(opened._drained, "seconds_for", lambda amount: amount / 2)
        answer = httpx.post(f"{own.url}/v1/completions", json={"prompt": [5] * 11, "max_tokens": 1})
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "20"  # (30 + 11 - 1) / 2
        opened._queued = 0
