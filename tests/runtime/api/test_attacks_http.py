"""What is no HTTP, or hardly: each is refused or closed, no fault is logged, and everybody else is served on."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from live_server import LiveServer

BODY = b'{"prompt":"hi","max_tokens":1}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"\r\n0\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(BODY)


@pytest.fixture(autouse=True)
def served_on(tiny: LiveServer, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert httpx.post(f"{tiny.url}/v1/completions", content=BODY, timeout=20).status_code == 200
    faults = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not faults, [record.getMessage() for record in faults]


def exchange(server: LiveServer, data: bytes, seconds: float = 2.0) -> bytes:
    """Everything that comes back, until the server closes or says nothing for a while."""
    got = b""
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0), timeout=10) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
        client.settimeout(seconds)
        try:
            while part := client.recv(1 << 16):
                got += part
                client.settimeout(0.3)
        except (TimeoutError, ConnectionError):
            pass
    return got


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), {400}),  # TLS
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 404, 405, 505}),
        (b"GET /health\r\n\r\n", {400}),
        (b"\x00" * 1000 + b"\r\n\r\n", {400}),
        (b"hello\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\n\r\n", {400}),  # no Host
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", {400}),
        (b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", {200, 400, 505}),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", {431}),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", {431}),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {431, 414}),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n: nameless\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", {400}),
        (b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
        (b"GET /%ff%00%2e%2e/ HTTP/1.1\r\nHost: x\r\n\r\n", {404}),
        (b"GET /v1/models/%00%ff HTTP/1.1\r\nHost: x\r\n\r\n", {404}),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", {404}),
        (b"GET http://evil.example/health HTTP/1.1\r\nHost: x\r\n\r\n", {404, 400}),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", {400, 404, 405}),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", {404, 405}),
        (b"get /health HTTP/1.1\r\nHost: x\r\n\r\n", {400, 405}),
        (b"BREW /health HTTP/1.1\r\nHost: x\r\n\r\n", {405}),
        (POST + b"Content-Length: -1\r\n\r\n", {400}),
        (POST + b"Content-Length: 1e3\r\n\r\n", {400}),
        (POST + b"Content-Length: +5\r\n\r\n", {400}),
        (POST + b"Content-Length: 99999999999999999999999999\r\n\r\n", {400, 413}),
        (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}", {400}),
        (POST + b"Content-Length: 5, 6\r\n\r\n{}", {400}),
        (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", {400}),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\nx", {400, 413}),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}xxxyyyyyy\r\n", {400}),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1E;" + b"e" * 90_000 + b"\r\n" + BODY + LAST, {200, 400, 431}),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: x\r\n" * 20_000 + b"\r\n", {400, 431}),
        (POST + b"Content-Encoding: gzip\r\n" + LENGTH + BODY, {200, 400, 415}),
        (POST + b"Upgrade: websocket\r\nConnection: Upgrade\r\n" + LENGTH + BODY, {200, 400}),
        (POST + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n" + LENGTH + BODY, {200}),
        (POST + LENGTH + BODY + b"\r\n\r\ngarbage", {200}),
        (GET.replace(b"\r\n", b"\n"), {200, 400}),
        (b"\r\n\r\n" + GET, {200, 400}),
    ],
)  # fmt: skip
def test_what_is_hardly_http(tiny: LiveServer, data: bytes, statuses: set[int]) -> None:
    got = exchange(tiny, data)
    assert got.startswith(b"HTTP/1.1 "), got
    assert int(got.split(b" ", 2)[1]) in statuses, got[:300]
    head, _, body = got.partition(b"\r\n\r\n")
    if b"application/json" in head.lower() and b"chunked" not in head.lower():
        json.loads(body.partition(b"HTTP/1.1 ")[0])
    assert b"Traceback" not in got


def test_pipelined_requests_are_answered_in_order(tiny: LiveServer) -> None:
    names = [b"n%d" % number for number in range(40)]
    got = exchange(tiny, b"".join(b"GET /v1/models/%s HTTP/1.1\r\nHost: x\r\n\r\n" % name for name in names), 5)
    assert got.count(b"HTTP/1.1 404") == len(names)
    places = [got.find(b"Model '%s'" % name) for name in names]
    assert places == sorted(places)
    assert -1 not in places


def test_garbage_behind_a_stream_that_runs_ends_the_connection_alone(tiny: LiveServer) -> None:
    body = b'{"prompt":"hi","max_tokens":200,"ignore_eos":true,"stream":true}'
    got = exchange(tiny, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"\x00garbage\r\n\r\n", 5)
    assert got.startswith(b"HTTP/1.1 200")
    assert got.count(b"data: ") > 1


def test_a_chunk_that_breaks_off_inside_a_body_that_is_waited_for(tiny: LiveServer) -> None:
    with socket.create_connection(("127.0.0.1", httpx.URL(tiny.url).port or 0), timeout=5) as client:
        client.sendall(POST + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"pro\r\n')
        time.sleep(0.1)
        client.sendall(b"nonsense\r\n")
        assert b" 400 " in client.recv(1 << 16)


def test_a_client_that_asks_to_go_on_is_told_to(tiny: LiveServer) -> None:
    with socket.create_connection(("127.0.0.1", httpx.URL(tiny.url).port or 0), timeout=5) as client:
        client.sendall(POST + b"Expect: 100-continue\r\n" + LENGTH)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 100")
        client.sendall(BODY)
        assert b" 200 " in client.recv(1 << 16)


DEEP = 100_000
PATHS = (
    "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/responses/input_tokens", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/embeddings", "/v1/score", "/v1/rerank", "/generate", "/tokenize", "/detokenize",
    "/abort", "/v1/branches", "/v1/branches/run", "/v1/branches/close", "/v1/branches/x/extend", "/v1/programs",
    "/v1/programs/x/results",
)  # fmt: skip
PADDING = b" " * (100 << 10)  # the large bodies have a reader of their own
HARDLY_JSON: dict[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a number": b"1e999",
    "not a number": b'{"temperature":NaN,"prompt":"a"}',
    "infinity": b'{"temperature":-Infinity}',
    "too large a float": b'{"temperature":1e999,"prompt":"a","input":"a","text":"a"}',
    "deep lists": b'{"prompt":' + b"[" * DEEP,
    "deep closed lists": b'{"prompt":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "deep objects": b'{"metadata":' * DEEP,
    "deep schema": b'{"prompt":"a","json_schema":' + b'{"items":' * 900 + b"{}" + b"}" * 900 + b"}",
    "deep ignored field": b'{"prompt":"a","max_tokens":1,"metadata":' + b"[" * 900 + b"]" * 900 + b"}",
    "half a pair": b'{"prompt":"\\ud800","input":"\\ud800","messages":[{"role":"user","content":"\\udfff"}]}',
    "half a pair as a name": b'{"\\ud800":1}',
    "no UTF-8": b'{"prompt":"\xff\xfe"}',
    "surrogates in UTF-8": b'{"prompt":"\xed\xa0\x80"}',
    "UTF-16": '{"prompt":"a"}'.encode("utf-16"),
    "a mark in front": b'\xef\xbb\xbf{"prompt":"a","max_tokens":1}',
    "a name twice": b'{"prompt":"a","prompt":"b","max_tokens":1,"max_tokens":1}',
    "a zero byte": b'{"prompt":"a\x00b"}',
    "a zero escaped": b'{"prompt":"a\\u0000b","max_tokens":1,"model":"\\u0000","stop":"\\u0000"}',
    "a long number": b'{"seed":' + b"9" * 10_000 + b"}",
    "something behind": b"{} {}",
}  # fmt: skip


@pytest.mark.parametrize("name", HARDLY_JSON)
@pytest.mark.parametrize("padding", [b"", PADDING], ids=["small", "large"])
def test_what_is_hardly_json(tiny: LiveServer, name: str, padding: bytes) -> None:
    with httpx.Client(base_url=tiny.url, timeout=30) as http:
        for path in PATHS:
            answer = http.post(path, content=HARDLY_JSON[name] + padding)
            assert answer.status_code in (200, 400, 404, 410), (path, answer.text[:300])
            assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"{" + b",".join(b'"k%d":1' % number for number in range(300_000)) + b"}",
        lambda: (
            b'{"prompt":"a","max_tokens":1,"metadata":{' + b",".join(b'"k%d":1' % n for n in range(300_000)) + b"}}"
        ),
        lambda: b'{"messages":[' + b",".join([b"{}"] * 300_000) + b"]}",
        lambda: b'{"prompt":[' + b",".join([b'""'] * 300_000) + b"]}",
        lambda: b'{"prompt":[' + b",".join([b"[]"] * 300_000) + b"]}",
        lambda: b'{"prompt":[' + b",".join([b"null"] * 300_000) + b"]}",
    ],
    ids=["names", "ignored names", "empty messages", "empty texts", "empty lists", "nulls"],
)
def test_very_many_values(tiny: LiveServer, make: Callable[[], bytes]) -> None:
    data = make()
    with httpx.Client(base_url=tiny.url, timeout=60) as http:
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/messages"):
            answer = http.post(path, content=data)
            assert answer.status_code in (200, 400), answer.text[:300]
            assert len(answer.content) < 5000
