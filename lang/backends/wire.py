"""HTTP/1.1 over asyncio streams, as much of it as talking to one server takes: connections kept and used again,
answers whole or piece by piece.

A program's calls are many and small, so what a request costs this process counts; a general client costs several
times as much. Knows nothing of branches; the backends over HTTP are its callers. There are no generators here: they are
slower, and those that nobody reads to the end would be left to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from urllib.parse import urlsplit

CONNECTIONS = 1024
CONNECT_SECONDS = 10.0
LONGEST_HEAD = 1 << 16  # bytes
_INTERIM = (b"HTTP/1.1 1", b"HTTP/1.0 1")  # how heads begin that come before an answer's own
_BODILESS = (204, 304)

Failed = Callable[[OSError], Exception]


class Server:
    """A server by its URL. Everything here runs on one event loop. `failed` makes what is raised for an error of the
    network; without it that is the OSError itself."""

    def __init__(
        self, url: str, headers: Mapping[str, str], *, verify: bool | str = True, failed: Failed | None = None
    ) -> None:
        split = urlsplit(url)
        self._host = split.hostname or ""
        self._tls = _tls(verify) if split.scheme == "https" else None
        self._port = split.port or (443 if self._tls else 80)
        self._path = split.path.rstrip("/")
        lines = {"host": split.netloc.rpartition("@")[2], "content-type": "application/json", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._idle: list[_Connection] = []
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._closed = False
        self.failed = failed

    def request(self, method: str, path: str, body: bytes) -> Exchange:
        """A request, which is sent when it is entered."""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        return Exchange(self, head.encode("latin-1") + body)

    async def take(self, data: bytes) -> tuple[_Connection, bytes]:
        """A connection that has been sent `data`, and the head of its answer; to be given back. Raises OSError."""
        await self._room.acquire()
        self._under_way += 1
        self._quiet.clear()
        try:
            connection, head = await self._sent(data)
        except BaseException:
            self._left()
            raise
        connection.used, connection.complete = True, False
        return connection, head

    def give_back(self, connection: _Connection) -> None:
        """Where an answer was read to its end another request may follow; else the server sees that nobody reads."""
        if connection.reusable and not self._closed:
            self._idle.append(connection)
        else:
            connection.writer.close()
        self._left()

    def _left(self) -> None:
        self._room.release()
        self._under_way -= 1
        if not self._under_way:
            self._quiet.set()

    async def _sent(self, data: bytes) -> tuple[_Connection, bytes]:
        """A connection that has been sent `data`, and the head of its answer. A kept connection that turns out to be
        closed is no failure: nothing was answered, so another one is asked."""
        while True:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                connection.writer.write(data)
                await connection.writer.drain()
                head = await connection.reader.readuntil(b"\r\n\r\n")
                while head.startswith(_INTERIM):
                    head = await connection.reader.readuntil(b"\r\n\r\n")
                return connection, head
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

    async def drained(self, seconds: float) -> None:
        """Wait until nothing is under way, or `seconds` are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._under_way:
                    await self._quiet.wait()


class Exchange:
    """A request, and its answer while it is entered. Leaving before the answer's end closes the connection."""

    __slots__ = ("_connection", "_data", "_server")

    def __init__(self, server: Server, data: bytes) -> None:
        self._server = server
        self._data = data
        self._connection: _Connection

    async def __aenter__(self) -> Answer:
        try:
            return await self._answered()
        except OSError as found:
            error = found
        raise _told(error, self._server.failed)

    async def _answered(self) -> Answer:
        self._connection, head = await self._server.take(self._data)
        try:
            return Answer(self._connection, head, self._server.failed)
        except OSError:
            self._server.give_back(self._connection)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.give_back(self._connection)


class Answer:
    """An answer whose head has come; its body is read by one of `read`, `body` and Events."""

    __slots__ = ("_chunks", "_connection", "_failed", "_keeps", "_length", "_over", "headers", "status")

    def __init__(self, connection: _Connection, head: bytes, failed: Failed | None) -> None:
        """Raises ConnectionError for what is no head."""
        try:
            first, *lines = head.decode("latin-1").split("\r\n")[:-2]
            protocol, status, *_ = first.split(" ", 2)
            if not protocol.startswith("HTTP/1."):
                raise ValueError(protocol)
            self.status = int(status)
            pairs = (line.partition(":") for line in lines)
            self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            length = "0" if self.status in _BODILESS else self.headers.get("content-length")
            self._length = int(length) if length is not None else None
        except ValueError:
            raise ConnectionError(f"it doesn't speak HTTP: {head[:60]!r}") from None
        self._chunks = _Chunks() if self.headers.get("transfer-encoding", "").lower().endswith("chunked") else None
        self._keeps = "close" not in self.headers.get("connection", "").lower()
        self._connection = connection
        self._failed = failed
        self._over = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    async def read(self) -> bytes:
        """What comes next of the body; nothing at its end."""
        if self._over:
            return b""
        try:
            return await self._next()
        except asyncio.IncompleteReadError:
            error: OSError = ConnectionResetError("it ended an answer early")
        except (ValueError, asyncio.LimitOverrunError):
            error = ConnectionError("it doesn't speak HTTP")
        except OSError as found:
            error = found
        raise _told(error, self._failed)

    async def body(self) -> bytes:
        """All of it."""
        pieces: list[bytes] = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    async def _next(self) -> bytes:
        reader = self._connection.reader
        if self._length is not None and self._chunks is None:
            data = await reader.readexactly(self._length)
            self._ends(keeps=self._keeps)
            return data
        while True:
            data = await reader.read(LONGEST_HEAD)
            if self._chunks is None:
                if not data:
                    self._ends(keeps=False)
                return data
            if not data:
                raise ConnectionResetError("it ended an answer early")
            piece = self._chunks.push(data)
            if self._chunks.over:
                self._ends(keeps=self._keeps and not self._chunks.rest)
            if piece or self._over:
                return piece

    def _ends(self, *, keeps: bool) -> None:
        self._over = True
        self._connection.complete = keeps


class Events:
    """The data of an answer's server-sent events, each on one line, as they come."""

    __slots__ = ("_answer", "_begun", "_whole")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._begun: list[bytes] = []  # of a line, in pieces: a long one is put together once
        self._whole: deque[bytes] = deque()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> bytes:
        while not self._whole:
            piece = await self._answer.read()
            if not piece:
                raise StopAsyncIteration
            lines = piece.split(b"\n")
            if self._begun and len(lines) > 1:
                lines[0] = b"".join([*self._begun, lines[0]])
                self._begun.clear()
            if rest := lines.pop():
                self._begun.append(rest)
            for line in lines:
                if line.startswith(b"data:"):
                    self._whole.append(line[5:].strip())
        return self._whole.popleft()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.used = False  # before: the server may have closed it meanwhile
        self.complete = False  # the answer was read to its end, and another request may follow

    @property
    def reusable(self) -> bool:
        return self.complete and not self.reader.at_eof() and not self.writer.is_closing()


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


def _told(error: OSError, failed: Failed | None) -> Exception:
    """What is raised for an error of the network, which is the cause where that is another."""
    if failed is None:
        return error
    told = failed(error)
    told.__cause__ = error
    return told


def _tls(verify: bool | str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
