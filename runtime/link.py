"""The link between a front (frontend, HTTP) and an engine: requests out, replies in, every request answered.

Two of them: `LocalLink` runs an engine core in a thread of this process (`palmette.Engine`, tests); `ZmqLink`
talks to an engine process over ZeroMQ (launch). Both remember which requests are open, so that a dead engine fails
each of them with EngineDied, and a reply of an earlier engine is dropped. Knows nothing of tokens, text or HTTP.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

import msgspec
import zmq

from palmette.runtime.errors import Aborted, EngineDied, InvalidRequest, PalmetteError
from palmette.runtime.messages.replies import (
    Answer,
    Counters,
    EngineReady,
    Failed,
    Generated,
    Heartbeat,
    Reply,
    ReplyBatch,
)
from palmette.runtime.messages.requests import Asked, Request, RequestBatch

HEARTBEAT_SECONDS = 1.0
EXIT_SECONDS = 30.0  # for the step under way when Python exits
READABLE = int(zmq.POLLIN)
MOST_BATCHES = 32  # of replies read in one turn of the event loop

log = logging.getLogger(__name__)

T = TypeVar("T")
Deliver = Callable[[Sequence[Reply]], None]


class EngineCore(Protocol):
    """Scheduler and worker. Used by one thread at a time."""

    ready: EngineReady

    def submit(self, request: Request) -> None:
        """Take a request in. A bad one becomes a Failed reply of a later step."""
        ...

    def step(self) -> list[Reply]:
        """One scheduling step; [] when there is nothing to do. Raises only where the engine can't go on."""
        ...

    @property
    def has_work(self) -> bool: ...

    def upkeep(self) -> None:
        """A moment in which nothing runs, at most one a heartbeat."""
        ...

    def close(self) -> None:
        """The last call, also where a step raised: gives up what works for it beside this thread."""
        ...

    def counters(self) -> Counters: ...


class EngineLink(Protocol):
    def send(self, request: Request) -> None:
        """Never blocks; a dead engine is a Failed reply, not an exception. In the event loop's thread only."""
        ...

    def start(self, deliver: Deliver) -> None:
        """Begin, in a running event loop; `deliver` is called in its thread, first with EngineReady."""
        ...

    async def close(self) -> None:
        """Let go of the engine; what is open is answered with Failed (Aborted). Idempotent."""
        ...


class OpenRequests:
    """The ids that were sent and have no final reply yet."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def note_sent(self, request: Request) -> None:
        if isinstance(request, Asked):
            self._ids.add(request.id)

    def note_replies(self, replies: Sequence[Reply]) -> list[Reply]:
        """The replies without those of requests that aren't open; final ones close theirs."""
        known: list[Reply] = []
        for reply in replies:
            if isinstance(reply, Answer):
                if reply.id not in self._ids:
                    continue
                if not isinstance(reply, Generated) or reply.finish is not None:
                    self._ids.discard(reply.id)
            known.append(reply)
        return known

    def fail_all(self, error: PalmetteError) -> list[Reply]:
        info = error.info()
        failed: list[Reply] = [Failed(request, info) for request in sorted(self._ids)]
        self._ids.clear()
        return failed


def closed_error() -> Aborted:
    return Aborted("The engine was closed while the request was open.", hint="Start an engine and send it again.")


class LocalLink:
    """An engine core in its own thread of this process.

    The thread sleeps on a condition while there is nothing to do. An exception that leaves the core's step ends
    the engine: `death` holds it, and every open and later request is answered with EngineDied.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._open = OpenRequests()
        self._inbox: list[Request] = []
        self._wake = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deliver: Deliver | None = None
        self.death: BaseException | None = None

    def start(self, deliver: Deliver) -> None:
        assert self._thread is None, "a link is started once"
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        deliver([self._core.ready])
        self._thread = threading.Thread(target=self._run, name="palmette-engine", daemon=True)
        self._thread.start()
        atexit.register(self._stop_at_exit)

    def send(self, request: Request) -> None:
        self._open.note_sent(request)
        if self.death is not None or self._closing:
            assert self._loop is not None
            self._loop.call_soon(self._fail_open)
            return
        with self._wake:
            self._inbox.append(request)
            self._wake.notify()

    async def close(self) -> None:
        self._stop()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            atexit.unregister(self._stop_at_exit)
        self._fail_open()

    def _stop(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()

    def _stop_at_exit(self) -> None:
        """Python's exit ends threads that ask for its lock; one that comes out of a kernel then would abort the
        process. So the engine's is let end by itself."""
        assert self._thread is not None
        self._stop()
        self._thread.join(EXIT_SECONDS)
        self._call(lambda _: self._fail_open(), None)

    def _run(self) -> None:
        """The engine's thread: receive, step, emit."""
        next_beat = time.monotonic()
        emit_seconds = 0.0
        try:
            while not self._closing:
                for request in self._receive(next_beat):
                    self._core.submit(request)
                worked = self._core.has_work
                replies = self._core.step() if worked else []
                now = time.monotonic()
                due = now >= next_beat
                if due or (worked and not self._core.has_work):  # the last counters are of when something ran
                    next_beat = now + HEARTBEAT_SECONDS if due else next_beat
                    if due and not self._core.has_work:
                        self._core.upkeep()
                    counters = msgspec.structs.replace(self._core.counters(), emit_seconds=emit_seconds)
                    replies = [*replies, Heartbeat(counters)]
                if replies:
                    start = time.perf_counter()
                    self._call(self._arrive, replies)
                    emit_seconds += time.perf_counter() - start
        except Exception as error:  # the boundary of the engine: reported to every open request
            self._call(self._die, error)
        finally:
            self._core.close()

    def _receive(self, next_beat: float) -> list[Request]:
        """Requests that arrived; waits for one while the core is idle and no heartbeat is due."""
        with self._wake:
            while not self._inbox and not self._core.has_work and not self._closing:
                rest = next_beat - time.monotonic()
                if rest <= 0:
                    break
                self._wake.wait(rest)
            received, self._inbox = self._inbox, []
        return received

    def _call(self, action: Callable[[T], None], argument: T) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(action, argument)
        except RuntimeError:  # the loop was closed under us: nobody is left to answer
            self._closing = True

    def _arrive(self, replies: list[Reply]) -> None:
        assert self._deliver is not None
        known = self._open.note_replies(replies)
        if known:
            self._deliver(known)

    def _die(self, error: Exception) -> None:
        self.death = error
        self._fail_open()

    def _fail_open(self) -> None:
        if self._deliver is None or not len(self._open):
            return
        error: PalmetteError = closed_error()
        if self.death is not None:
            kind = type(self.death).__name__
            error = EngineDied(f"The engine stopped: {kind}: {self.death}.", hint="Start a new engine.")
        self._deliver(self._open.fail_all(error))


class ZmqLink:
    """An engine process at the other end of two ipc sockets in `folder`.

    Engines may come and go: `attach` opens fresh sockets for the next one, `detach` fails what is open. Requests
    of one turn of the event loop travel in one RequestBatch.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._generation = 0
        self._open = OpenRequests()
        self._outbox: list[Request] = []
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._out: zmq.Socket[bytes] | None = None
        self._in: zmq.Socket[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deliver: Deliver | None = None
        self._absence: PalmetteError = EngineDied("The engine is not running yet.", hint="Try again soon.")
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ReplyBatch)

    @property
    def open_requests(self) -> int:
        return len(self._open)

    def start(self, deliver: Deliver) -> None:
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._context = zmq.Context()

    def attach(self) -> tuple[str, str]:
        """Sockets for a new engine; returns its (requests, replies) endpoints. The earlier one is detached."""
        assert self._context is not None, "start comes first"
        assert self._out is None, "detach comes first"
        assert self._loop is not None
        self._generation += 1
        requests = f"ipc://{self._folder}/requests-{self._generation}"
        replies = f"ipc://{self._folder}/replies-{self._generation}"
        self._out = self._context.socket(zmq.PUSH)
        self._out.setsockopt(zmq.SNDHWM, 0)
        self._out.setsockopt(zmq.LINGER, 0)
        self._out.bind(requests)
        self._in = self._context.socket(zmq.PULL)
        self._in.setsockopt(zmq.RCVHWM, 0)
        self._in.setsockopt(zmq.LINGER, 0)
        self._in.bind(replies)
        self._loop.add_reader(self._in.FD, self._read, self._in)
        self._loop.call_soon(self._read, self._in)  # what came before is not announced
        return requests, replies

    def detach(self, reason: PalmetteError) -> None:
        """The engine is gone: fail what is open, and what is sent until the next attach, with `reason`."""
        self._absence = reason
        self._outbox.clear()
        if self._in is not None and self._loop is not None:
            self._loop.remove_reader(self._in.FD)
        for socket in (self._out, self._in):
            if socket is not None:
                socket.close(0)
        self._out = self._in = None
        self._fail_open()

    def send(self, request: Request) -> None:
        assert self._loop is not None, "start the link first"
        self._open.note_sent(request)
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(request)

    async def close(self) -> None:
        self.detach(closed_error())
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    def _flush(self) -> None:
        requests = tuple(self._outbox)
        self._outbox.clear()
        if not requests:
            return
        if self._out is None:
            self._fail_open()
            return
        try:
            data = self._encoder.encode(RequestBatch(requests))
        except (OverflowError, TypeError, ValueError, RecursionError):
            data = self._encoder.encode(RequestBatch(self._sendable(requests)))
        try:
            self._out.send(data, zmq.NOBLOCK)
        except zmq.Again:  # no engine is connected: it died, or has not come up
            self._fail_open()

    def _sendable(self, requests: Sequence[Request]) -> tuple[Request, ...]:
        """Those that the wire can hold; the others are answered here, so that they fail alone."""
        fit: list[Request] = []
        for request in requests:
            try:
                self._encoder.encode(request)
                fit.append(request)
            except (OverflowError, TypeError, ValueError, RecursionError) as error:
                refused = InvalidRequest(f"The request holds a value that can't be sent: {error}.")
                if isinstance(request, Asked) and self._deliver is not None:
                    self._deliver(self._open.note_replies([Failed(request.id, refused.info())]))
        return tuple(fit)

    def _read(self, socket: zmq.Socket[bytes]) -> None:
        """Delivers what has arrived. The socket's descriptor tells of news only once, so all must be read.

        Plain sockets and a callback: zmq.asyncio's futures cost more than delivering a token does.
        """
        for _ in range(MOST_BATCHES):
            if socket is not self._in or not cast("int", socket.getsockopt(zmq.EVENTS)) & READABLE:
                return
            data = socket.recv(zmq.NOBLOCK)
            try:
                known = self._open.note_replies(self._decoder.decode(data).replies)
                if known and self._deliver is not None:
                    self._deliver(known)
            except Exception:  # reading goes on: else everybody would wait forever
                log.exception("replies of the engine could not be delivered")
        assert self._loop is not None
        self._loop.call_soon(self._read, socket)  # the rest, once others have had their turn

    def _fail_open(self) -> None:
        if self._deliver is not None and len(self._open):
            self._deliver(self._open.fail_all(self._absence))
