"""The native surface, the probes and the key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from live_server import LiveServer

from palmette.runtime.api.access import Keys
from palmette.runtime.frontend import Frontend
from palmette.runtime.messages.replies import Counters

SAID = "the tokens of a naïve model — 😀 self"


@pytest.fixture
def http(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize(
    "body",
    [
        {"text": "hi", "max_tokens": 60},
        {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 60, "temperature": 0.0}},
        {"messages": [{"role": "user", "content": "hi"}]},
    ],
)
def test_generate(http: httpx.Client, body: dict[str, Any]) -> None:
    whole = http.post("/generate", json={**body, "return_logprob": True}).json()
    assert whole["text"] == SAID
    assert whole["meta_info"]["finish_reason"] == {"type": "length", "matched": None}
    assert len(whole["meta_info"]["output_token_logprobs"]) == len(whole["output_ids"])
    parts = events(http.post("/generate", json={**body, "stream": True}))
    assert "".join(part["delta"] for part in parts) == SAID
    assert [token for part in parts for token in part["output_ids"]] == whole["output_ids"]
    assert parts[-1]["meta_info"]["completion_tokens"] == len(whole["output_ids"])


def test_generate_many(http: httpx.Client) -> None:
    answers = http.post("/generate", json={"text": ["a", "b"], "max_tokens": 4}).json()
    assert [len(answer["output_ids"]) for answer in answers] == [4, 4]
    parts = events(http.post("/generate", json={"text": ["a", "b"], "max_tokens": 4, "stream": True}))
    assert {part["index"] for part in parts} == {0, 1}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "Give one of 'text'"),
        ({"text": "a", "input_ids": [1]}, "Give one of 'text'"),
        ({"text": "a", "temperature": 0.5, "sampling_params": {}}, "beside 'sampling_params'"),
        ({"text": "a", "sampling_params": {"max_tokens": 3, "max_new_tokens": 4}}, "differ"),
        ({"text": "a", "sampling_params": {"regexp": "a"}}, "'sampling_params.regexp' is not a field"),
        ({"text": "a", "regex": "a", "choices": ["b"]}, "regex and choices were given together"),
        ({"text": "a", "constraint": {"grammar": 3}}, "The constraint has a wrong form"),
        ({"input_ids": [600]}, "600 is not a token id"),
        ({"text": "a", "temperature": "hot"}, "temperature"),
        ({"text": "a", "stream": 1}, "stream"),
        ({"text": "\ud800"}, "not"),
    ],
)
def test_bad_bodies(http: httpx.Client, body: dict[str, Any], words: str) -> None:
    response = http.post("/generate", content=json.dumps(body).encode())
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"nul"])
def test_what_is_no_json_object(http: httpx.Client, content: bytes) -> None:
    response = http.post("/generate", content=content)
    assert response.status_code == 400
    assert "JSON" in response.json()["error"]["message"]


def test_unknown_paths_and_methods_answer_in_the_same_form(http: httpx.Client) -> None:
    assert http.get("/nope").status_code == 404
    response = http.get("/generate")
    assert response.status_code == 405
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_tokenize_and_back(http: httpx.Client) -> None:
    tokens = http.post("/tokenize", json={"prompt": "naïve <|im_end|>"}).json()["tokens"]
    assert 2 not in tokens
    assert http.post("/detokenize", json={"tokens": tokens}).json()["prompt"] == "naïve <|im_end|>"
    special = http.post("/tokenize", json={"prompt": "a<|im_end|>", "special": True}).json()["tokens"]
    assert special[-1] == 2
    assert http.post("/detokenize", json={"tokens": special, "special": True}).json()["prompt"] == "a<|im_end|>"
    chat = http.post("/tokenize", json={"messages": [{"role": "user", "content": "x"}]}).json()
    assert chat["count"] == len(chat["tokens"])
    assert http.post("/detokenize", json={"tokens": [-1]}).status_code == 400


def test_abort_flush_and_cache(http: httpx.Client, server: LiveServer) -> None:
    assert http.post("/abort", json={"rid": "unknown"}).json() == {"aborted": 0}
    assert http.post("/abort_request", json={"rid": ""}).json() == {"aborted": 0}
    assert http.post("/abort", json={}).status_code == 400
    assert http.post("/flush_cache").json() == {"flushed_pages": 7}
    assert http.get("/cache").json()["nodes"][0]["tokens"] == [5]
    link = server.frontend.scripted  # type: ignore[attr-defined]
    server.soon(link.go.clear)
    try:
        with http.stream("POST", "/generate", json={"text": "a", "stream": True, "rid": "mine"}) as response:
            lines = response.iter_lines()
            next(lines)
            assert httpx.post(f"{server.url}/abort", json={"rid": "mine"}).json() == {"aborted": 1}
            rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert rest[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    finally:
        server.soon(link.go.set)


def test_probes_and_metrics(http: httpx.Client, server: LiveServer) -> None:
    link = server.frontend.scripted  # type: ignore[attr-defined]
    server.soon(lambda: link.beat(Counters(running=3, cached_tokens=11)))
    health = http.get("/health")
    assert health.status_code == 200
    assert health.json()["status"] == "ok"
    assert health.json()["running"] == 3
    assert http.get("/ready").json()["ready"] is True
    http.post("/generate", json={"text": "hi"})
    metrics = http.get("/metrics").text
    assert 'palmette_tokens_total{source="cached"} 11.0' in metrics
    assert "palmette_time_to_first_token_seconds_count" in metrics
    server.soon(lambda: server.frontend.engine_lost("restarting", "It ended."))
    try:
        assert http.get("/ready").status_code == 503
        assert http.get("/health").json()["status"] == "restarting"
    finally:
        server.soon(lambda: link.start(link._deliver))


def test_quarantined_pages_are_degraded_health_until_the_engine_is_another(
    http: httpx.Client, server: LiveServer
) -> None:
    link = server.frontend.scripted  # type: ignore[attr-defined]
    server.soon(lambda: link.beat(Counters(quarantined_pages=2, running=1)))
    health = http.get("/health")
    assert health.status_code == 200, "it serves"
    assert health.json()["status"] == "degraded"
    assert "2 pages are quarantined" in health.json()["detail"]
    assert http.get("/ready").json()["ready"] is True
    server.soon(lambda: server.frontend.engine_lost("restarting", "It ended."))
    try:
        lost = http.get("/health").json()
        assert (lost["status"], lost["detail"], lost["running"]) == ("restarting", "It ended.", 0)
    finally:
        server.soon(lambda: link.start(link._deliver))
    assert http.get("/health").json()["status"] == "ok"


def test_no_traceback_leaves_the_server(
    http: httpx.Client, server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(server.frontend, "submit_packed", broken)
    response = http.post("/generate", json={"text": "hi"})
    assert response.status_code == 500
    assert "secret" not in response.text
    assert response.json()["error"]["code"] == "InternalError"


def test_the_key_opens_everything_but_the_probes(scripted_frontend: Callable[[], Frontend]) -> None:
    with LiveServer(scripted_frontend, keys=Keys(("s3cret",))) as live, httpx.Client(base_url=live.url) as http:
        assert http.get("/health").status_code in (200, 503)
        assert http.get("/v1/models").status_code == 401
        assert http.get("/v1/models", headers={"authorization": "Bearer s3cre"}).status_code == 401
        assert http.get("/v1/models", headers={"authorization": "Bearer s3cret"}).status_code == 200


def test_the_gauges_know_at_once_that_nothing_runs(tiny: LiveServer) -> None:
    """Not only with the next heartbeat, a second later."""
    with httpx.Client(base_url=tiny.url, timeout=30) as http:
        for _ in range(20):
            body = {"text": ["a", "b", "c"], "sampling_params": {"max_new_tokens": 40, "ignore_eos": True}}
            assert http.post("/generate", json=body).status_code == 200
            assert "palmette_requests_running 0.0" in http.get("/metrics").text
