"""The HTTP client of programs against servers that answer by hand, one behaviour each."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmette as sgl
from palmette import function, gen
from palmette.lang.backends import http
from palmette.lang.backends.http import HttpBackend
from palmette.lang.backends.wire import Events, Server
from palmette.runtime.errors import EngineDied, InternalError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[str, list[int]]]:
    """A server whose connections run `handler(reader, writer, number)`; its URL, and the connections so far."""
    connections: list[int] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        tasks.add(asyncio.current_task())
        try:
            await handler(reader, writer, connections[-1])
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base", connections
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length"))
    return head.split("\r\n")[0], await reader.readexactly(length)


def plain(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def chunked(pieces: list[bytes]) -> bytes:
    data = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + data + b"0\r\n\r\n"


async def ask(server: Server, body: bytes = b"{}") -> bytes:
    async with server.request("POST", "/path", body) as answer:
        assert answer.ok
        return await answer.body()


async def test_a_connection_is_used_again_for_answers_of_every_form() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while True:
            line, body = await read_request(reader)
            assert line == "POST /base/path HTTP/1.1"
            writer.write(plain(body) if len(body) % 2 else chunked([body[:3], body[3:]]))

    async with serving(handler) as (url, connections):
        server = Server(url, {"authorization": "Bearer x"})
        for size in (1, 2, 30, 31):
            assert await ask(server, b"x" * size) == b"x" * size
        assert len(connections) == 1
        bodies = await asyncio.gather(*(ask(server, b"%d" % n) for n in range(20)))
        assert bodies == [b"%d" % n for n in range(20)]
        server.close()


@settings(max_examples=25)
@given(st.lists(st.binary(min_size=1, max_size=200), max_size=8), st.integers(1, 50))
def test_an_answer_in_any_pieces_is_the_same(pieces: list[bytes], cut: int) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await read_request(reader)
        data = chunked(pieces)
        for start in range(0, len(data), cut):
            writer.write(data[start : start + cut])
            await writer.drain()
            await asyncio.sleep(0)

    async def main() -> None:
        async with serving(handler) as (url, _):
            assert await ask(Server(url, {})) == b"".join(pieces)

    asyncio.run(main())


async def test_a_kept_connection_that_the_server_closed_is_no_failure() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await read_request(reader)
        writer.write(plain(b"once"))  # and then it closes

    async with serving(handler) as (url, connections):
        server = Server(url, {})
        for _ in range(3):
            assert await ask(server) == b"once"
        assert len(connections) == 3


async def test_leaving_early_closes_the_connection_and_no_answer_goes_astray() -> None:
    left = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        _, body = await read_request(reader)
        if body == b"long":
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nmore\r\n")
            await reader.read()
            left.set()
        else:
            writer.write(plain(body))

    async with serving(handler) as (url, _):
        server = Server(url, {})
        async with server.request("POST", "/path", b"long") as answer:
            assert await answer.read() == b"more"
        await asyncio.wait_for(left.wait(), 5)
        slow = asyncio.ensure_future(ask(server, b"long"))
        await asyncio.sleep(0.05)
        slow.cancel()
        assert await ask(server, b"short") == b"short"


@pytest.mark.parametrize(
    "said",
    [
        b"", b"HTTP/1.1", b"hello\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"x" * 200_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-4\r\nhalf\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 200_000,
    ],
    ids=["nothing", "half", "no HTTP", "no status", "short", "no chunk", "endless", "negative", "no end", "no length"],
)  # fmt: skip
async def test_servers_that_break_off_or_speak_something_else(said: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await read_request(reader)
        writer.write(said)
        await writer.drain()

    async with serving(handler) as (url, _):
        with pytest.raises(OSError):
            await ask(Server(url, {}))


def run_against(handler: Handler, program: sgl.Program) -> BaseException | None:
    """The failure of a program that runs against such a server."""

    async def main() -> BaseException | None:
        async with serving(handler) as (url, _):
            backend = HttpBackend(url)
            state = await asyncio.to_thread(program.run, backend=backend)
            error = await asyncio.to_thread(state.error)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(backend.close(), backend.loop))
            return error

    return asyncio.run(main())


@function
def one(s):
    s += "a" + gen("x")


def test_a_server_that_dies_in_the_middle_of_a_stream_fails_the_gen_at_its_line() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await read_request(reader)
        events = [{"branch": "b"}, {"chunk": {"text": "hel"}}]
        data = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()

    error = run_against(handler, one)
    assert isinstance(error, sgl.ProgramError)
    assert isinstance(error.cause, EngineDied)
    assert error.retryable
    assert "test_wire.py" in str(error)
    assert "gen('x')" in str(error)
    assert "palmette serve" in str(error)


def test_another_kind_of_server_is_named() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\nnot found")

    error = run_against(handler, one)
    assert isinstance(error, sgl.ProgramError)
    assert isinstance(error.cause, InternalError)
    assert "Is this a Palmette server?" in str(error)


async def test_closing_waits_for_what_is_under_way() -> None:
    ends = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await read_request(reader)
        await ends.wait()
        writer.write(plain(b"late"))

    async with serving(handler) as (url, _):
        server = Server(url, {})
        await server.drained(5)  # at once
        asking = asyncio.ensure_future(ask(server))
        await asyncio.sleep(0.02)
        await server.drained(0.02)
        assert not asking.done()
        drained = asyncio.ensure_future(server.drained(60))
        ends.set()
        assert await asking == b"late"
        await asyncio.wait_for(drained, 5)


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", 304, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + plain(b"late"), 200, b"late"),
        (chunked([b"both"]).replace(b"\r\n", b"\r\nContent-Length: 99\r\n", 1), 200, b"both"),
    ],
)
async def test_where_an_answer_ends_is_known_without_the_connections_end(sent: bytes, status: int, body: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while True:
            await read_request(reader)
            writer.write(sent)

    async with serving(handler) as (url, connections):
        server = Server(url, {})
        for _ in range(2):
            async with asyncio.timeout(5), server.request("POST", "/path", b"") as answer:
                assert (answer.status, await answer.body()) == (status, body)
        assert len(connections) == 1
        server.close()


async def test_what_was_left_of_an_answer_is_no_head_of_the_next() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while True:
            await read_request(reader)
            writer.write(plain(b"body") + b"more")

    async with serving(handler) as (url, _):
        server = Server(url, {})
        assert await ask(server) == b"body"
        with pytest.raises(ConnectionError, match="doesn't speak HTTP"):
            await ask(server)


async def test_a_long_event_is_put_together_once() -> None:
    class Pieces:
        """An answer that comes in pieces."""

        def __init__(self, data: bytes, size: int) -> None:
            self._left = [data[at : at + size] for at in range(0, len(data), size)]

        async def read(self) -> bytes:
            return self._left.pop(0) if self._left else b""

    def events(data: bytes, size: int) -> Events:
        return Events(Pieces(data, size))  # type: ignore[arg-type]

    text = ": said\r\nevent: x\r\ndata: é\r\n\r\ndata:2\n\nid: 3\n\ndata: [DONE]\r\n\r\n".encode()
    for size in range(1, len(text)):
        assert [data async for data in events(text, size)] == ["é".encode(), b"2", b"[DONE]"]

    async def seconds(length: int) -> float:
        long = events(b"data: " + b"x" * length + b"\n\n", 500)
        begun = time.process_time()
        assert [len(data) async for data in long] == [length]
        return time.process_time() - begun

    assert min([await seconds(4_000_000) for _ in range(3)]) < 30 * min([await seconds(500_000) for _ in range(3)])


async def test_an_error_of_the_network_is_not_its_own_cause() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await read_request(reader)

    async with serving(handler) as (url, _):
        with pytest.raises(ConnectionResetError) as found:
            await ask(Server(url, {}))
        assert found.value.__cause__ is not found.value
        told = Server(url, {}, failed=lambda error: InternalError(str(error)))
        with pytest.raises(InternalError) as other:
            await ask(told)
        assert isinstance(other.value.__cause__, ConnectionResetError)


async def test_branches_are_closed_though_nobody_keeps_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop doesn't keep what waits for an answer."""
    monkeypatch.setattr(http, "GATHER_SECONDS", 0.0)
    asked, goes_on, answers = asyncio.Event(), asyncio.Event(), list[object]()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await read_request(reader)
        asked.set()
        await goes_on.wait()
        writer.write(plain(b'{"closed": 1}'))

    class Told(HttpBackend):
        async def post(self, path: str, body: dict[str, object]) -> dict[str, object]:
            answers.append(await super().post(path, body))
            return {}

    async with serving(handler) as (url, _):
        backend = Told(url)
        backend.close_soon("branch")
        await asyncio.wait_for(asked.wait(), 5)
        await asyncio.sleep(0.1)  # it waits for the answer now
        gc.collect()
        goes_on.set()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(backend.close(), backend.loop))
    assert answers == [{"closed": 1}]


def test_a_script_may_end_while_a_server_is_asked() -> None:
    """What waits for the server ends before Python does, without a word."""
    program = (
        "import socket, palmette, time\n"
        "from palmette.lang.backends.http import HttpBackend\n"
        "silent = socket.create_server(('127.0.0.1', 0))\n"
        "@palmette.function\n"
        "def asks(s): s += 'Once' + palmette.gen('x')\n"
        "state = asks.run(backend=HttpBackend('http://127.0.0.1:%d' % silent.getsockname()[1]))\n"
        "silent.accept()[0].recv(1)\n"
        "import asyncio\n"
        "from palmette.lang.loop import language_loop\n"
        "loop = language_loop()\n"
        "print(len(asyncio.all_tasks(loop)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "1\n")
