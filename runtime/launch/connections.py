"""The connections of a server: how many there may be, and how long each may keep the server waiting.

A head that doesn't come to its end is answered with 408, a connection without a request is closed after a while, and a
reader that takes nothing is dropped, which ends its request. Where there is no room for one more, the connection that
has been without a request for longest makes room; where all of them have one, the newcomer gets a 503, and only what
operators ask is served. Builds on uvicorn's HTTP/1.1 protocol (h11, which is installed with it); knows no route and
no body: those have limits of their own (api/bodies.py). Made by web.py.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import sys
from typing import Any

import h11
import orjson
from h11._readers import ChunkedReader
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from palmette.runtime.api.access import OPEN_PATHS, is_near
from palmette.runtime.api.bodies import too_large
from palmette.runtime.api.errors import failure
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.limits import Limits
from palmette.runtime.api.request_ids import RequestIds, RequestName, name_in
from palmette.runtime.metrics import WebMetrics

ACCEPTED_AT_ONCE = 16  # in one turn of the event loop; each takes some 50 µs
OWN_FILES = 64  # of those this process may open: for the engine, the log, the model, and threads
RESERVED_FILES = OWN_FILES + 4 * ACCEPTED_AT_ONCE  # one that is refused is a file for four turns of the loop
SPARE = 16  # connections beyond the bound: to be told so, and for operators
NEAR_ONLY = 8  # of them, for clients on this machine
FRESH_SECONDS = 0.5  # a connection that is no older doesn't make room: its request may be under way
SPARE_SECONDS = 2.0  # for a head on a spare connection
HEAD_BYTES = 16 << 10  # of a head, give or take as much again
LINGER_SECONDS = 5.0  # for the rest of a body whose answer is out already
OPERATORS = (*OPEN_PATHS, "/metrics", "/cache", "/abort", "/abort_request", "/flush_cache")
BUSY = "Too many connections are open."
NO_HTTP = "This is no HTTP request that can be read"
BARE_NEWLINE = re.compile(rb"(?<!\r)\n")
CLOSE = (b"connection", b"close")

protocol_log = logging.getLogger(f"{__name__}.protocol")
protocol_log.setLevel(logging.ERROR)  # what clients send is answered; a line each would let anybody fill the log


def most_connections(limits: Limits) -> int:
    """As many as `limits` allows, and as this process has files for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits.connections
    return max(1, min(limits.connections, max(files // 4, files - RESERVED_FILES - SPARE)))


class Connections:
    """All of one server's. Calling it makes the next one, as uvicorn does where it has a class."""

    def __init__(self, limits: Limits, metrics: WebMetrics | None = None) -> None:
        self.limits = limits
        self.metrics = metrics or WebMetrics()
        self.most = most_connections(limits)
        self.pause = min(5.0, max(0.02, min(limits.head_seconds, limits.send_seconds) / 4))
        self._served: set[Connection] = set()
        self._spare: set[Connection] = set()
        self._waiting: dict[Connection, float] = {}  # served ones without a request, longest first; since when

    def __call__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Connection:
        return Connection(self, config, server_state, app_state, _loop)

    def admit(self, connection: Connection, now: float) -> bool:
        """Whether there is a place for it, be it a spare one."""
        if len(self._served) >= self.most:
            self._make_room(now)
        if len(self._served) < self.most:
            self._served.add(connection)
            self._note()
            return True
        self.metrics.refused.labels("full").inc()
        if len(self._spare) < (SPARE if connection.near else SPARE - NEAR_ONLY):
            self._spare.add(connection)
            connection.serve_operators_only()
            return True
        return False

    def leave(self, connection: Connection) -> None:
        """It is closed, or as good as closed. Idempotent."""
        self._served.discard(connection)
        self._spare.discard(connection)
        self._waiting.pop(connection, None)
        self._note()

    def is_spare(self, connection: Connection) -> bool:
        return connection in self._spare

    def waits(self, connection: Connection, now: float) -> None:
        """It has no request."""
        if connection in self._served:
            self._waiting.setdefault(connection, now)

    def works(self, connection: Connection) -> None:
        """It has one."""
        self._waiting.pop(connection, None)

    def _make_room(self, now: float) -> None:
        oldest = next(iter(self._waiting), None)
        if oldest is not None and now - self._waiting[oldest] > FRESH_SECONDS:
            self.metrics.refused.labels("idle").inc()
            self.leave(oldest)
            oldest.drop()

    def _note(self) -> None:
        self.metrics.open.set(len(self._served) + len(self._spare))


class Connection(H11Protocol):
    """One connection. A timer looks now and then whether it keeps the server waiting."""

    def __init__(
        self,
        house: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self.app = _WhileOpen(self, self.app)
        self.logger = protocol_log
        self._house = house
        self._timer: asyncio.TimerHandle | None = None
        self._head_since: float | None = None  # when the head that isn't whole yet began
        self._linger_until: float | None = None
        self._parting = False  # the last answer is out: what else comes is thrown away
        self._unsent: tuple[int, float] = (0, 0.0)  # bytes that the reader hadn't taken, and since when not one less
        self.near = False
        self._judged: object = None  # the request whose framing has been looked at

    # --- what uvicorn's protocol calls ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        now = self.loop.time()
        self.near = is_near({"client": self.client, "headers": []})
        if not self._house.admit(self, now):
            self._answer(503, BUSY, "TooManyConnections")
            self.transport.close()
            return
        self._head_since = now
        self._house.waits(self, now)
        self._timer = self.loop.call_later(self._house.pause, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            data = data.lstrip(b"\r\n")  # empty lines before a request are none of it (RFC 9112, 2.2)
            if not data:
                return
        step = HEAD_BYTES if self.conn.their_state is h11.IDLE else max(1, len(data))
        for begin in range(0, len(data), step):  # so that a long head is noticed before it has been read
            if self._parting or self.transport.is_closing():
                return
            super().data_received(data[begin : begin + step])
        if self.cycle is not None and self.cycle is not self._judged:
            self._judged = self.cycle
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in self.headers}:
                self.cycle.keep_alive = False  # two lengths: what is behind it may be no request (RFC 9112, 6.1)
        if self.conn.their_state is h11.SEND_BODY and not self._parting:
            self._check_chunk()
        self._note_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_state()
        if self._has_no_request and self.conn.their_state is h11.SEND_BODY:
            self._linger_until = self.loop.time() + LINGER_SECONDS

    def send_400_response(self, msg: str) -> None:
        """What isn't HTTP. Called inside `except h11.RemoteProtocolError`, which knows a better status than 400."""
        error = sys.exception()
        status = getattr(error, "error_status_hint", 400)
        self._answer(status, f"{NO_HTTP}: {error}.", "InvalidRequest")

    # --- ours ---

    @property
    def hears_nobody(self) -> bool:
        """What is sent from now on reaches nobody; uvicorn is told so a turn of the loop later."""
        return self._parting or self.transport.is_closing()

    def _check_chunk(self) -> None:
        """Of a body in chunks: one that no body may hold, or whose size can't be read, isn't waited for."""
        reader: Any = self.conn._reader
        if not isinstance(reader, ChunkedReader) or reader._reading_trailer:
            return
        most = self._house.limits.body_bytes
        if reader._bytes_in_chunk > most:
            self._answer(413, str(too_large(most)), "BodyTooLarge")
        elif not reader._bytes_in_chunk and BARE_NEWLINE.search(self.conn.trailing_data[0]):
            self._answer(400, f"{NO_HTTP}: a chunk's size ends with CR LF.", "InvalidRequest")

    def serve_operators_only(self) -> None:
        self.app = RequestIds(_OperatorsOnly(self.app))

    def drop(self) -> None:
        """End it now; what runs for it is aborted."""
        self.transport.abort()

    @property
    def _has_no_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _note_state(self) -> None:
        if self._parting:
            return
        if not self._has_no_request:
            self._head_since = self._linger_until = None
            self._house.works(self)
            return
        now = self.loop.time()
        self._house.waits(self, now)
        if self._head_since is None and self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._head_since = now

    def _look(self) -> None:
        """The timer: is it still worth having?"""
        now = self.loop.time()
        if self._is_stuck(now):
            self._house.metrics.refused.labels("reader").inc()
            self.drop()
            return
        if not self.transport.is_closing():
            if self._linger_until is not None and now > self._linger_until:
                if not self._parting:
                    self._house.metrics.refused.labels("body").inc()
                self.transport.close()
            elif self._head_is_late(now):
                self._house.metrics.refused.labels("head").inc()
                self._answer(408, "The head of the request did not come to its end.", "TooSlow")
        self._timer = self.loop.call_later(self._house.pause, self._look)

    def _head_is_late(self, now: float) -> bool:
        if self._head_since is None or self._parting or not self._has_no_request:
            return False
        limit = self._house.limits.head_seconds
        if self._house.is_spare(self):
            limit = min(limit, SPARE_SECONDS)
        return now - self._head_since > limit

    def _is_stuck(self, now: float) -> bool:
        """Nothing of what was sent has been taken for too long. Looked at only while nothing is added to it: else
        more of it says nothing."""
        unsent = self.transport.get_write_buffer_size()
        settled = self.flow.write_paused or self._has_no_request or self.transport.is_closing()
        least, since = self._unsent
        if not unsent or not settled or not least or unsent < least:
            self._unsent = (unsent if settled else 0, now)
            return False
        return now - since > self._house.limits.send_seconds

    def _answer(self, status: int, message: str, code: str) -> None:
        """An answer that no request asked for, or none that could be read; then it is over.

        The client may be sending still, and would lose the answer if the connection were closed on it: so the rest is
        taken for a while, and thrown away.
        """
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.drop()  # inside another answer there is no place for it
            return
        path, name = "", RequestName()
        if not self._has_no_request:
            scope: Scope = dict(self.cycle.scope)
            path, name = scope["path"], name_in(scope)
            self.cycle.disconnected = True  # whoever waits for its body need not
            self.cycle.message_event.set()
        body = orjson.dumps(failure(status, message, path, code=code))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), CLOSE]
        headers += name.headers(path)
        if status == 503:
            headers.append((b"retry-after", b"1"))
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self._parting = True
        self._linger_until = self.loop.time() + LINGER_SECONDS
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()


class _WhileOpen:
    """An application that sends nothing once its client is gone, or has been told that it is over: asyncio warns of
    writes to a lost connection, and HTTP has no place for a second answer."""

    def __init__(self, connection: Connection, app: Any) -> None:
        self._connection = connection
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def heard(message: Message) -> None:
            if self._connection.hears_nobody:
                self._connection.cycle.disconnected = True
            await send(message)

        await self._app(scope, receive, heard)


class _OperatorsOnly:
    """An application that serves probes, and administrators on this machine; everybody else is told to come again."""

    def __init__(self, app: Any) -> None:
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], CLOSE]}
            await send(message)

        path = scope["path"]
        if path in OPEN_PATHS or (path in OPERATORS and is_near(scope)):
            await self._app(scope, receive, closing)
            return
        body = failure(503, f"{BUSY} Try again in a moment.", path, code="TooManyConnections")
        await JsonResponse(body, status_code=503, headers={"retry-after": "1"})(scope, receive, closing)
