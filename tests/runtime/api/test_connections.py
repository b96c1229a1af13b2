"""Clients that keep the server waiting, and more of them than there is room for, over real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx
import pytest
from frontends import make_scripted_frontend, tiny_frontend
from live_server import LiveServer
from starlette.types import Receive, Scope, Send

from palmette.runtime.api import limits as api_limits
from palmette.runtime.api.app import ApiOptions
from palmette.runtime.api.limits import Limits
from palmette.runtime.launch import connections
from palmette.runtime.launch.connections import RESERVED_FILES, SPARE, most_connections
from palmette.runtime.launch.listening import listen
from palmette.runtime.launch.web import Web

BODY = json.dumps({"prompt": "hello", "max_tokens": 2}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
SHORT = Limits(head_seconds=0.4, body_seconds=0.4, send_seconds=0.4, keep_alive_seconds=1)


@contextmanager
def serving(limits: Limits, frontend: Callable = make_scripted_frontend) -> Iterator[LiveServer]:  # type: ignore[type-arg]
    with LiveServer(frontend, options=ApiOptions(limits=limits)) as server:
        yield server


def connected(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0), timeout=10)


def everything(client: socket.socket) -> bytes:
    """What comes until the server closes; a reset counts as that."""
    got = b""
    try:
        while part := client.recv(1 << 16):
            got += part
    except ConnectionError:
        pass
    return got


def drip(client: socket.socket, data: bytes) -> bytes:
    """Sends byte by byte until the server has had enough, which it must have before the end; what it said."""
    client.settimeout(0.05)
    got = b""
    for byte in data:
        try:
            client.sendall(bytes([byte]))
            part = client.recv(1 << 16)
        except TimeoutError:
            continue
        except ConnectionError:
            return got
        if not part:
            return got
        got += part
    raise AssertionError("the server has patience without end")


def dropped(server: LiveServer, reason: str) -> float:
    text = server.frontend.metrics.export().decode()
    found = re.search(rf'palmette_connections_dropped_total{{reason="{reason}"}} (\S+)', text)
    assert found is not None
    return float(found[1])


def wait_for(found: Callable[[], bool], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.02)


@pytest.mark.parametrize("sent", [b"", b"P", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_does_not_end_is_answered_and_over(sent: bytes) -> None:
    with serving(SHORT) as server, connected(server) as client:
        client.sendall(sent)
        assert b"408" in everything(client)
        assert dropped(server, "head") == 1


def test_a_head_that_drips_is_not_waited_for_any_longer() -> None:
    with serving(SHORT) as server, connected(server) as client:
        begun = time.monotonic()
        drip(client, b"GET /health HTTP/1.1\r\nX-Long: " + b"x" * 100)
        assert time.monotonic() - begun < 5


def test_a_second_head_has_its_time_too() -> None:
    with serving(SHORT) as server, connected(server) as client:
        client.sendall(HEAD % len(BODY) + BODY + b"GET /hea")
        got = everything(client)
        assert b"200 OK" in got
        assert b"408" in got


def test_a_connection_without_a_request_is_closed_after_a_while() -> None:
    with serving(replace(SHORT, head_seconds=30)) as server, connected(server) as client:
        client.sendall(HEAD % len(BODY) + BODY)
        begun = time.monotonic()
        got = everything(client)
        assert b"200 OK" in got
        assert b"408" not in got
        assert time.monotonic() - begun < 5


def test_a_body_that_drips_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(SHORT) as server, connected(server) as client:
        client.sendall(HEAD % 10_000)
        begun = time.monotonic()
        assert b"408" in drip(client, b" " * 200)
        assert time.monotonic() - begun < 9


def test_a_long_body_that_keeps_its_pace_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_limits, "BODY_RATE", 1000)
    body = BODY + b" " * 4000
    with serving(replace(SHORT, body_seconds=0.6)) as server, connected(server) as client:
        client.sendall(HEAD % len(body))
        for place in range(0, len(body), 800):
            client.sendall(body[place : place + 800])
            time.sleep(0.2)
        assert b"200 OK" in client.recv(1 << 16)


def test_a_body_behind_its_answer_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.2)
    with serving(SHORT) as server, connected(server) as client:
        client.sendall(b"POST /no/such/path HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert b"404" in client.recv(1 << 16)
        drip(client, b" " * 200)


@pytest.mark.parametrize("slow_steps", [0.002], indirect=True)
def test_a_reader_that_takes_nothing_is_dropped_and_its_request_with_it(slow_steps: None) -> None:
    """Others are served meanwhile; afterwards nothing runs, and no page is held."""
    body = json.dumps(
        {"prompt": "def", "stream": True, "max_tokens": 1900, "ignore_eos": True, "n": 2, "logprobs": 64}
    ).encode()
    with serving(replace(SHORT, send_seconds=0.2, head_seconds=30), tiny_frontend) as server:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", httpx.URL(server.url).port or 0))
            deaf.sendall(HEAD % len(body) + body)
            assert httpx.post(f"{server.url}/v1/completions", content=BODY, timeout=30).status_code == 200
            wait_for(lambda: dropped(server, "reader") == 1, 60)
        wait_for(lambda: server.frontend.counters.aborted > 0 and server.frontend.counters.running == 0)


def test_a_slow_reader_is_not_dropped() -> None:
    """It takes a little, now and then: that is progress."""
    body = json.dumps(
        {"prompt": "def", "stream": True, "max_tokens": 120, "ignore_eos": True, "n": 2, "logprobs": 64}
    ).encode()
    with serving(replace(SHORT, send_seconds=0.6, head_seconds=30), tiny_frontend) as server, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", httpx.URL(server.url).port or 0))
        slow.settimeout(20)
        slow.sendall(HEAD % len(body) + body)
        got = b""
        while b"[DONE]" not in got:
            part = slow.recv(65536)
            assert part, "it was dropped"
            got += part
            time.sleep(0.01)
        assert dropped(server, "reader") == 0


def test_half_sent_heads_make_room() -> None:
    """Ten times as many as there may be, and somebody who means it is served at once."""
    limits = Limits(connections=20)  # with the usual time-outs: nothing but the bound helps
    with serving(limits) as server, ExitStack() as held:
        for _ in range(8):
            for _ in range(25):
                held.enter_context(connected(server)).sendall(b"POST /v1/comp")
            time.sleep(0.3)
        time.sleep(connections.FRESH_SECONDS)
        begun = time.monotonic()
        answer = httpx.post(f"{server.url}/v1/completions", content=BODY, timeout=10)
        assert answer.status_code == 200, answer.text
        assert time.monotonic() - begun < 2
        assert len(server.web.server_state.connections) <= 20 + SPARE + 1
        assert dropped(server, "idle") > 0


def test_where_all_work_newcomers_are_told_and_operators_are_served() -> None:
    limits = Limits(connections=4)
    with serving(limits) as server, ExitStack() as held:
        working = [held.enter_context(connected(server)) for _ in range(4)]
        for client in working:
            client.sendall(HEAD % 1000 + b"{")
        wait_for(lambda: not server.web.open_connections._waiting)
        refused = httpx.post(f"{server.url}/v1/completions", content=BODY, timeout=10)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "TooManyConnections"
        assert int(refused.headers["retry-after"]) >= 1
        for path in ("/health", "/ready", "/metrics", "/cache"):
            assert httpx.get(f"{server.url}{path}", timeout=10).status_code == 200, path
        assert httpx.post(f"{server.url}/flush_cache", json={}, timeout=10).status_code == 200
        foreign = httpx.get(f"{server.url}/cache", headers={"host": "evil.example"}, timeout=10)
        assert foreign.status_code == 503
        working[0].sendall(b" " * 989 + b'"a": 1}' + b" " * 3)
        assert b" 400 " in working[0].recv(1 << 16)
        assert dropped(server, "full") >= 7


def test_more_than_even_the_spare_ones_are_closed() -> None:
    with serving(Limits(connections=2)) as server, ExitStack() as held:
        working = [held.enter_context(connected(server)) for _ in range(2)]
        for client in working:
            client.sendall(HEAD % 1000 + b"{")
        wait_for(lambda: not server.web.open_connections._waiting)
        for _ in range(SPARE):
            held.enter_context(connected(server)).sendall(b"GET")
        beyond = held.enter_context(connected(server))
        got = everything(beyond)
        assert b"503" in got
        assert b"TooManyConnections" in got


CHUNKED = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("size", [b"FFFFFFFFFF\r\n", b"1000001\r\n", b"1e\n{", b"2\r\n{}\r\n1e\n"])
def test_a_chunk_that_no_body_can_hold_is_refused_at_once(size: bytes) -> None:
    with serving(Limits(body_seconds=60)) as server, connected(server) as client:
        client.sendall(CHUNKED % b"/v1/completions" + size)
        got = everything(client)
    large = b"\n" in size[-1:] and b"\r" in size[-2:]
    assert got.startswith(b"HTTP/1.1 413 " if large else b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1") == 1  # the application, which waited for its body, has no second answer


def test_an_impossible_chunk_on_anthropics_path_is_told_in_its_form() -> None:
    with serving(Limits(body_seconds=60)) as server, connected(server) as client:
        client.sendall(CHUNKED % b"/v1/messages" + b"FFFFFFFFFF\r\n")
        got = everything(client)
    assert json.loads(got.partition(b"\r\n\r\n")[2])["type"] == "error"
    assert b"\r\nrequest-id: req_" in got


def test_chunks_in_pieces_and_their_trailers_are_read() -> None:
    sent = CHUNKED % b"/v1/completions" + b"1;a=b\r\n" + BODY[:1] + b"\r\n%x\r\n" % (len(BODY) - 1) + BODY[1:]
    sent += b"\r\n0\r\nx: y\r\n\r\n"
    with serving(SHORT) as server, connected(server) as client:
        for byte in sent[:-60]:
            client.sendall(bytes([byte]))
        client.sendall(sent[-60:])
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_empty_lines_before_a_request_are_none_of_it() -> None:
    with serving(SHORT) as server, connected(server) as client:
        client.sendall(b"\r\n\r\n" + HEAD % len(BODY) + BODY)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_what_is_sent_to_a_client_that_has_gone_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    over = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        time.sleep(0.3)  # so that nobody tells the loop that the client goes away
        for _ in range(20):
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
        over.set()

    async def serve(listener: socket.socket) -> None:
        web = Web(app)
        served = asyncio.ensure_future(web.serve(sockets=[listener]))
        await asyncio.to_thread(leave, listener.getsockname())
        web.should_exit = True
        await served

    def leave(address: tuple[str, int]) -> None:
        client = socket.create_connection(address, timeout=10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        client.recv(1)
        client.close()  # a reset
        assert over.wait(10)

    asyncio.run(serve(listen("127.0.0.1", 0)))
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_the_bound_is_what_there_are_files_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        assert most_connections(Limits()) == 300 - RESERVED_FILES - SPARE
        assert most_connections(Limits(connections=10)) == 10
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_sent_fills_no_log(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with serving(SHORT) as server, connected(server) as client:
        client.sendall(sent)
        assert b"HTTP/1.1 " in everything(client)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
