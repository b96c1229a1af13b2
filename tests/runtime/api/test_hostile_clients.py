"""What hostile and clumsy clients send: each is told so, and nobody else notices."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from frontends import make_scripted_frontend
from live_server import LiveServer

from palmette.runtime.api.app import ApiOptions
from palmette.runtime.api.limits import Limits

CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=30) as client:
        yield client


def connected(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0), timeout=10)


def answered(client: socket.socket) -> bytes:
    """A whole answer, head and JSON."""
    answer = b""
    while not answer.endswith(b"}}"):
        part = client.recv(1 << 16)
        assert part, answer
        answer += part
    return answer


def complete(http: httpx.Client, **fields: Any) -> httpx.Response:
    return http.post("/v1/completions", json={"prompt": "hello", "max_tokens": 4, **fields})


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"top_k": 2**31}, "2147483647"),
        ({"top_k": 2**63}, "2147483647"),
        ({"stop_token_ids": [512], "min_tokens": 2}, "ids 0 to 511"),
        ({"stop_token_ids": [2**40], "min_tokens": 2}, "ids 0 to 511"),
        ({"stop_token_ids": [-1], "min_tokens": 2}, "ids 0 to 511"),
        ({"repetition_penalty": 1e-46, "top_k": 5, "min_p": 0.5}, "[0.01, 100]"),
    ],
)
def test_values_that_no_step_can_hold_are_refused_before_one(
    http: httpx.Client, fields: dict[str, Any], limit: str
) -> None:
    response = complete(http, **fields)
    assert response.status_code == 400, response.text
    assert limit in response.json()["error"]["message"]


def test_the_largest_seed_has_one_after_it(http: httpx.Client) -> None:
    last, first = (complete(http, seed=seed).json()["choices"][0]["text"] for seed in (2**64 - 1, 0))
    both = complete(http, seed=2**64 - 1, n=2).json()["choices"]
    assert [choice["text"] for choice in both] == [last, first]


@pytest.mark.parametrize("head", [HEAD % (1 << 40), CHUNKED])
def test_a_body_is_read_up_to_its_limit_only(head: bytes) -> None:
    options = ApiOptions(limits=Limits(body_bytes=1 << 16))
    with LiveServer(make_scripted_frontend, options=options) as server, connected(server) as client:
        client.sendall(head + b"20000\r\n" * (head is CHUNKED) + b" " * (1 << 17))  # and nothing more
        answer = answered(client)
    assert b" 413 " in answer
    assert b"more than 65536 bytes" in answer


def test_a_body_that_stops_coming_is_not_waited_for() -> None:
    options = ApiOptions(limits=Limits(body_seconds=0.2))
    with LiveServer(make_scripted_frontend, options=options) as server, connected(server) as client:
        client.sendall(HEAD % 30 + b"{")
        assert b" 408 " in answered(client)


def test_an_encoded_body_is_refused_as_such(http: httpx.Client) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    answer = http.post("/v1/completions", content=gzip.compress(body), headers={"content-encoding": "gzip"})
    assert answer.status_code == 415
    assert "'gzip'" in answer.json()["error"]["message"]
    assert http.post("/v1/completions", content=body, headers={"content-encoding": "identity"}).status_code == 200


def test_a_client_that_leaves_inside_its_body_is_no_fault_of_the_server(
    tiny: LiveServer, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(tiny) as client:
        client.sendall(HEAD % 30 + b"{")
    assert complete(http).status_code == 200
    assert "a request failed" not in caplog.text


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/completions", {"prompt": "a", "model": "m" * 100_000}, "Use 'tiny'"),
        ("/v1/completions", {"prompt": "a", "m" * 100_000: 1}, "Check its name."),
        ("/v1/completions", {"prompt": [1, "a" * 100_000]}, "got [1, 'aaa"),
        ("/v1/completions", {"prompt": "a", "stop": ["a" * 100_000, ""]}, "not a non-empty string"),
        ("/v1/completions", {"prompt": "a", "logprobs": -1}, "logprobs: Input should be greater"),
        ("/v1/completions", {"prompt": ["a"] * 129}, "a request has 128 at most"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
         "messages.0.content.0.text: "),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": {"a" * 100_000: 1}}]}, "messages.0.content"),
        ("/generate", {"text": "a", "sampling_params": {"temperature": "x"}}, "sampling_params.temperature: "),
        ("/generate", {"text": "a", "top_logprobs_num": -1}, "top_logprobs_num: "),
        ("/generate", {"text": "a", "logprob_start_len": -2}, "logprob_start_len: "),
        ("/v1/branches/" + "b" * 10_000 + "/extend", {"parts": []}, "Open a new one"),
        ("/" + "b" * 10_000, {}, "Not Found"),
    ],
)  # fmt: skip
def test_errors_name_the_place_and_stay_short(http: httpx.Client, path: str, body: dict[str, Any], words: str) -> None:
    response = http.post(path, json=body)
    assert 400 <= response.status_code < 500
    assert words in response.json()["error"]["message"]
    assert len(response.content) < 3000


def test_a_part_s_error_is_short_inside_a_stream_too(http: httpx.Client) -> None:
    branch = http.post("/v1/branches", json={}).json()["id"]
    body = {"parts": [{"type": "EndRole", "role": "r" * 100_000}]}
    response = http.post(f"/v1/branches/{branch}/generate", json=body)
    assert "Begin it first." in response.text
    assert len(response.content) < 3000


def test_the_start_of_the_prompt_s_logprobs(http: httpx.Client) -> None:
    def scored(start: int) -> int:
        body = {"input_ids": [5, 6, 7], "max_tokens": 1, "logprob_start_len": start}
        return len(http.post("/generate", json=body).json()["meta_info"].get("input_token_logprobs", []))

    assert [scored(start) for start in (-1, 0, 2, 2**63)] == [0, 2, 1, 0]


@pytest.mark.parametrize("role", ["usr", "function", "", "System", "<|im_start|>"])
def test_a_role_that_there_is_not_is_named(http: httpx.Client, role: str) -> None:
    refused = http.post("/v1/chat/completions", json={"messages": [{"role": role, "content": "Hi"}], "max_tokens": 1})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "messages.0.role"
    assert "assistant" in error["message"]


def test_no_answer_sends_a_client_elsewhere(http: httpx.Client) -> None:
    answer = http.post("/v1/completions/", json={"prompt": "Hi"}, headers={"host": "evil.example"})
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"


def test_steps_of_a_branch_hold_no_unknown_field(http: httpx.Client) -> None:
    refused = http.post("/v1/branches/run", json={"steps": [], "foo": 1})
    assert refused.status_code == 400
    assert "foo" in refused.json()["error"]["message"]


@pytest.mark.parametrize("padding", [b"", b" " * (1 << 17)], ids=["small", "large"])
def test_a_mark_in_front_of_a_body_is_none_of_it(http: httpx.Client, padding: bytes) -> None:
    """Windows' tools write one."""
    answer = http.post("/v1/completions", content=b'\xef\xbb\xbf{"prompt":"a","max_tokens":1}' + padding)
    assert answer.status_code == 200
    twice = http.post("/v1/completions", content=b"\xef\xbb\xbf\xef\xbb\xbf{}" + padding)
    assert twice.status_code == 400


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[]", "an array"),
        (b'"a"', "a string"),
        (b"5", "a number"),
        (b"1.5", "a number"),
        (b"true", "a truth"),
        (b"null", "the null"),
    ],
)
def test_a_body_that_is_no_object_is_named_as_json_names_it(http: httpx.Client, body: bytes, kind: str) -> None:
    answer = http.post("/v1/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"The body is {kind}")


@pytest.mark.parametrize(
    ("path", "body", "param", "hint"),
    [
        ("/v1/completions", {"prompt": "a", "n": 0}, "n", "Leave it out"),
        ("/v1/completions", {"prompt": "a", "n": 129}, "n", "several requests"),
        ("/v1/completions", {"prompt": ["a"] * 65, "n": 2}, "prompt", "several requests"),
        ("/generate", {"text": ["a"] * 129}, "text", "several requests"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents", "at least one"),
        ("/v1/rerank", {"query": "a", "documents": ["b"] * 1025}, "documents", "several requests"),
    ],
)
def test_what_to_do_about_too_few_and_too_many(
    http: httpx.Client, path: str, body: dict[str, Any], param: str, hint: str
) -> None:
    answer = http.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert hint in answer.json()["error"]["message"]
