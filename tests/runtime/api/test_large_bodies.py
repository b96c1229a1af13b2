"""Large bodies and answers are read and written beside the event loop, in the same meaning as small ones."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_server import LiveServer

from palmette.runtime.api.json_request import LARGE, parse_json, parse_large_json
from palmette.runtime.errors import InvalidRequest

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans())
@settings(max_examples=100)
def test_both_readers_read_the_same(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        small = parse_json(data)
    except InvalidRequest:
        with pytest.raises(InvalidRequest):
            parse_large_json(data)
        return
    assert parse_large_json(data) == small


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[1,]", b'{"a": 1,}', b'{"a" 1}', b'"\\ud800"', b"NaN", b"[-Infinity]", b"\xff", b"[" * 100_000,
     b'{"a":' * 50_000, b"9" * 5000, b'"\x00"', b"{} {}"],
)  # fmt: skip
def test_what_is_no_json_is_none_for_both(data: bytes) -> None:
    for parse in (parse_json, parse_large_json):
        with pytest.raises(InvalidRequest, match="The body is not JSON"):
            parse(data)


class LoopLag:
    """How much the loop's thread computes from one turn of a timer to the next, in CPU seconds: other programs on the
    machine don't count."""

    def __init__(self) -> None:
        self.lags: list[float] = []

    async def probe(self, stop: threading.Event) -> None:
        while not stop.is_set():
            begun = time.thread_time()
            await asyncio.sleep(0.001)
            self.lags.append(time.thread_time() - begun)


@contextmanager
def watched(server: LiveServer) -> Iterator[LoopLag]:
    lag, stop = LoopLag(), threading.Event()
    probing = asyncio.run_coroutine_threadsafe(lag.probe(stop), server.loop)
    try:
        yield lag
    finally:
        stop.set()
        probing.result(10)


def bodies() -> dict[str, tuple[str, dict[str, Any]]]:
    return {
        "text": ("/v1/completions", {"prompt": "word " * 20_000}),
        "ids": ("/v1/completions", {"prompt": [5] * 100_000}),
        "messages": ("/tokenize", {"messages": [{"role": "user", "content": "some words"}] * 3_000}),
        "tokenize": ("/tokenize", {"prompt": "some words here " * 5_000}),
        "schema": (
            "/v1/completions",
            {"prompt": "a", "json_schema": {"enum": [f"w{index}" for index in range(20_000)]}},
        ),
    }


@pytest.mark.parametrize("name", sorted(bodies()))
def test_a_large_body_does_not_hold_up_the_loop(tiny: LiveServer, name: str) -> None:
    """Of all that is computed for it, the loop's thread computes a small part at a time."""
    path, body = bodies()[name]
    data = json.dumps(body).encode()
    assert len(data) > LARGE
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)  # as launch does
    try:
        with watched(tiny) as lag:
            begun = time.process_time()
            response = httpx.post(tiny.url + path, content=data, timeout=60)
            taken = time.process_time() - begun
    finally:
        sys.setswitchinterval(before)
    assert response.status_code in (200, 400), response.text
    longest = sorted(lag.lags)[-1]
    assert longest < max(0.02, taken / 3), f"{longest:.4f} s of {taken:.4f} s"
