"""What hostile and clumsy clients send: each is told so, and nobody else notices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from live_server import LiveServer


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=30) as client:
        yield client


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
