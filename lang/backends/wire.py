"""HTTP/1.1 over asyncio streams, as much of it as talking to one server takes: connections kept and used again,
answers whole or piece by piece.

A program's calls are many and small, so what a request costs this process counts; a general client costs several
times as much. Knows nothing of branches; http.py is its only caller. Errors of the network are OSErrors.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

CONNECTIONS = 1024
CONNECT_SECONDS = 10.0
LONGEST_HEAD = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer; `pieces` is its body, to be read to the end before the connection serves again."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces])


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.used = False  # before: the server may have closed it meanwhile
        self.complete = False  # the answer was read to its end, and another request may follow

    @property
    def reusable(self) -> bool:
        return self.complete and not self.reader.at_eof() and not self.writer.is_closing()


class Server:
    """A server by its URL. Everything here runs on one event loop."""

    def __init__(self, url: str, headers: Mapping[str, str], *, verify: bool | str = True) -> None:
        split = urlsplit(url)
        self._host = split.hostname or ""
        self._tls = _tls(verify) if split.scheme == "https" else None
        self._port = split.port or (443 if self._tls else 80)
        self._path = split.path.rstrip("/")
        lines = {"host": split.netloc.rpartition("@")[2], "content-type": "application/json", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._idle: list[_Connection] = []
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._closed = False

    @contextlib.asynccontextmanager
    async def request(self, method: str, path: str, body: bytes) -> AsyncIterator[Answer]:
        """Send a request; its answer. Leaving before the answer's end closes the connection, which the server sees."""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        data = head.encode("latin-1") + body
        async with self._room:
            connection, first = await self._sent(data)
            connection.used, connection.complete = True, False
            try:
                yield _answer(connection, first)
            finally:
                if connection.reusable and not self._closed:
                    self._idle.append(connection)
                else:
                    connection.writer.close()

    async def _sent(self, data: bytes) -> tuple[_Connection, bytes]:
        """A connection that has been sent `data`, and the head of its answer. A kept connection that turns out to be
        closed is no failure: nothing was answered, so another one is asked."""
        while True:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                connection.writer.write(data)
                await connection.writer.drain()
                return connection, await connection.reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as error:
                connection.writer.close()
                if not connection.used or error.partial:
                    raise ConnectionResetError("it closed the connection") from None
            except asyncio.LimitOverrunError:
                connection.writer.close()
                raise ConnectionError("it answered with an endless head") from None
            except OSError:
                connection.writer.close()
                if not connection.used:
                    raise
            except BaseException:  # cancelled: the answer would come to somebody else
                connection.writer.close()
                raise

    async def _connect(self) -> _Connection:
        async with asyncio.timeout(CONNECT_SECONDS):
            return _Connection(
                *await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=LONGEST_HEAD)
            )

    def close(self) -> None:
        """Close what is idle now, and the rest as it ends."""
        self._closed = True
        for connection in self._idle:
            connection.writer.close()
        self._idle.clear()


def _answer(connection: _Connection, head: bytes) -> Answer:
    try:
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        status = int(first.split(" ", 2)[1])
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    except (ValueError, IndexError):
        raise ConnectionError(f"it doesn't speak HTTP: {head[:60]!r}") from None
    return Answer(status, headers, _pieces(connection, headers))


async def _pieces(connection: _Connection, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body as the server sent it, chunk by chunk."""
    reader = connection.reader
    keeps = headers.get("connection", "").lower() != "close"
    try:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            chunks = _Chunks()
            while not chunks.over:
                data = await reader.read(LONGEST_HEAD)
                if not data:
                    raise ConnectionResetError("it ended an answer early")
                if piece := chunks.push(data):
                    yield piece
            keeps = keeps and not chunks.rest
        elif "content-length" in headers:
            yield await reader.readexactly(int(headers["content-length"]))
        else:
            keeps = False
            while piece := await reader.read(LONGEST_HEAD):
                yield piece
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("it ended an answer early") from None
    except (ValueError, asyncio.LimitOverrunError):
        raise ConnectionError("it doesn't speak HTTP") from None
    connection.complete = keeps


class _Chunks:
    """A chunked body, read as it comes: what has come together is one piece. `rest`: behind it, not taken yet; `over`:
    the last chunk and the trailers were read."""

    __slots__ = ("_left", "over", "rest")

    def __init__(self) -> None:
        self.rest = b""
        self.over = False
        self._left = 0  # bytes of the chunk that has begun, the two behind it included

    def push(self, data: bytes) -> bytes:
        """The content in what has come. Raises ValueError for what is no chunk."""
        data = self.rest + data if self.rest else data
        found: list[bytes] = []
        at = 0
        while at < len(data) and not self.over:
            if self._left:
                end = min(at + self._left, len(data))
                if self._left > 2:
                    found.append(data[at : min(end, at + self._left - 2)])
                self._left -= end - at
                at = end
                continue
            line = data.find(b"\r\n", at)
            if line < 0:
                break
            self._left = int(data[at:line].partition(b";")[0], 16)
            if self._left < 0:
                raise ValueError("a chunk's length is negative")
            if self._left:
                self._left, at = self._left + 2, line + 2
                continue
            end = data.find(b"\r\n\r\n", line)  # of the trailers, or of the line itself where there are none
            if end < 0:
                break
            self.over, at = True, end + 4
        self.rest = data[at:]
        if len(self.rest) > LONGEST_HEAD:
            raise ValueError("a chunk's length, or its trailers, have no end")
        return found[0] if len(found) == 1 else b"".join(found)


def _tls(verify: bool | str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
