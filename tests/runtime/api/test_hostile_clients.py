"""What hostile and clumsy clients send: each is told so, and nobody else notices."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from live_server import LiveServer

from palmette.runtime.api import bodies

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=30) as client:
        yield client


def connected(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0), timeout=10)


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


def test_a_body_is_read_up_to_its_limit_only(tiny: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LARGEST_BODY", 1 << 16)
    with connected(tiny) as client:
        client.sendall(HEAD % (1 << 40) + b" " * (1 << 17))  # and nothing more
        answer = client.recv(1 << 16)
    assert b" 400 " in answer
    assert b"more than 65536 bytes" in answer


def test_a_client_that_leaves_inside_its_body_is_no_fault_of_the_server(
    tiny: LiveServer, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(tiny) as client:
        client.sendall(HEAD % 30 + b"{")
    assert complete(http).status_code == 200
    assert "a request failed" not in caplog.text
