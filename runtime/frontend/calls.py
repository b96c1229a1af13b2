"""The requests that this front has open with its engine: ids to waiting callers.

Knows the link and the messages, not tokens or text. Used by frontend and generation; lives in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from typing import TypeVar

from palmette.runtime.errors import (
    Aborted,
    InternalError,
    InvalidRequest,
    Overloaded,
    PalmetteError,
    from_info,
)
from palmette.runtime.link import EngineLink
from palmette.runtime.messages.replies import Answer, Embedded, Failed, Flushed, Generated, Reply, Scored, TreeDump
from palmette.runtime.messages.requests import Abort, Asked, DumpTree, Embed, FlushCache, Generate, Score
from palmette.runtime.messages.tokens import count
from palmette.runtime.metrics import FrontMetrics, Stopwatch

MEMORY_SECONDS = 10.0  # what the measured rates look back on
UNKNOWN_SECONDS = 10.0  # said where nothing has been measured yet

R = TypeVar("R", Scored, Embedded, Flushed, TreeDump)


class DrainRate:
    """How much leaves a queue in a second, of late: what left counts the less the longer ago that is."""

    def __init__(self) -> None:
        self._left = 0.0
        self._begun = self._last = time.monotonic()

    def note(self, amount: float) -> None:
        self._left = self._faded() + amount

    def seconds_for(self, amount: float) -> float:
        """Until so much has left, as far as can be said."""
        faded = self._left = self._faded()
        if not faded:
            return UNKNOWN_SECONDS
        seen = 1 - math.exp((self._begun - self._last) / MEMORY_SECONDS)  # of what a long look would have counted
        return amount * max(seen, 0.01) * MEMORY_SECONDS / faded

    def _faded(self) -> float:
        now = time.monotonic()
        faded = self._left * math.exp((self._last - now) / MEMORY_SECONDS)
        self._last = now
        return faded if faded > 1e-9 else 0.0


class Call:
    """One open request and the replies that have arrived for it."""

    def __init__(self, calls: OpenCalls, request_id: str, metrics: FrontMetrics, queued: int) -> None:
        self.id = request_id
        self.queued = queued  # prompt tokens, until its first reply
        self._calls = calls
        self._arrived: list[Reply] = []
        self._event = asyncio.Event()
        self._stopwatch = Stopwatch(metrics)
        self._broken: PalmetteError | None = None
        self.done = False  # the final reply has arrived, or the call was given up

    async def replies(self) -> list[Reply]:
        """What has arrived since the last time; waits for at least one. Raises the error that ended the call."""
        await self._event.wait()
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            if self._broken is None:
                self._event.clear()
            return arrived
        assert self._broken is not None
        raise self._broken

    async def heard(self, seconds: float) -> None:
        """Waits for the first reply, at most `seconds`. Raises the error that came instead and ended the call."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        if self._broken is not None and not self._arrived:
            raise self._broken

    def deliver(self, reply: Reply) -> None:
        match reply:
            case Failed(error=error):
                self.done, self._broken = True, from_info(error)
                if self._broken.retryable:
                    self._broken.retry_after = self._calls.restart_seconds
                self._stopwatch.note_finish("failed")
            case Generated(tokens=tokens, finish=finish):
                self._stopwatch.note_tokens(count(tokens))
                self._arrived.append(reply)
                if finish is not None:
                    self.done = True
                    self._stopwatch.note_finish(finish.reason, finish.usage)
            case _:
                self.done = True
                self._arrived.append(reply)
                self._stopwatch.note_finish("answered")
        self._event.set()

    def give_up(self) -> None:
        """Abort the request unless it is done; whoever waits for it gets Aborted. Idempotent."""
        if not self.done:
            self.done = True
            self._broken = Aborted(f"The request {self.id!r} was closed while it ran.")
            self._event.set()
            self._calls.abandon(self.id)
            self._stopwatch.note_finish("closed")


class OpenCalls:
    """Every open call of a front, by request id. At most `limit` at a time, and of those without a reply so far no
    more than `queued_tokens` prompt tokens together (a single one is let through whatever its length)."""

    def __init__(self, link: EngineLink, metrics: FrontMetrics, *, limit: int, queued_tokens: int) -> None:
        self._link = link
        self._metrics = metrics
        self._limit = limit
        self._most_queued = queued_tokens
        self._queued = 0  # prompt tokens of calls that have had no reply
        self._calls: dict[str, Call] = {}
        self._ending: set[str] = set()  # given up here, not yet answered by the engine
        self._drained = DrainRate()  # prompt tokens that had their first answer
        self._ended = DrainRate()  # calls
        self.absence: PalmetteError | None = None  # why nothing can be sent now
        self.restart_seconds: float | None = None  # how long an engine took to start, the last time

    def __len__(self) -> int:
        return len(self._calls)

    def open(self, request: Asked) -> Call:
        """Send `request`. Raises Overloaded where too many are open, InvalidRequest for an id that is.

        Raises EngineDied at once where there is no engine.
        """
        if self.absence is not None:
            absence = from_info(self.absence.info())  # one of its own: a traceback grows with each raise
            absence.retry_after = self.restart_seconds
            raise absence
        if request.id in self._calls:
            raise InvalidRequest(
                f"A request with id {request.id!r} is running.",
                hint="Give each request an id of its own, or none.",
                param="rid",
            )
        if request.id in self._ending:
            raise InvalidRequest(
                f"The closed request with id {request.id!r} is still being ended.",
                hint="Try again in a moment, or give each request an id of its own.",
                param="rid",
            )
        if len(self._calls) >= self._limit:
            full = Overloaded(
                f"{len(self._calls)} requests are open; at most {self._limit} can be.", hint="Try again soon."
            )
            full.retry_after = self._ended.seconds_for(len(self._calls) + 1 - self._limit)
            raise full
        tokens = _prompt_tokens(request)
        if self._queued and self._queued + tokens > self._most_queued:
            full = Overloaded(
                f"{self._queued} prompt tokens wait for their first answer, and this request has {tokens};"
                f" at most {self._most_queued} can wait.",
                hint="Try again soon.",
            )
            full.retry_after = self._drained.seconds_for(self._queued + tokens - self._most_queued)
            raise full
        call = Call(self, request.id, self._metrics, tokens)
        self._queued += tokens
        self._calls[request.id] = call
        self._metrics.open.set(len(self._calls))
        self._link.send(request)
        return call

    async def ask(self, request: Score | Embed | FlushCache | DumpTree, kind: type[R]) -> R:
        """Send a request that has one reply, and wait for it. Cancelling aborts it."""
        call = self.open(request)
        try:
            reply = (await call.replies())[0]
        finally:
            call.give_up()
        if not isinstance(reply, kind):
            raise InternalError(f"The engine answered a {type(request).__name__} with a {type(reply).__name__}.")
        return reply

    def deliver(self, replies: Sequence[Answer]) -> None:
        for reply in replies:
            call = self._calls.get(reply.id)
            if call is None:  # given up: its late replies concern nobody
                if not isinstance(reply, Generated) or reply.finish is not None:
                    self._ending.discard(reply.id)
                continue
            if call.queued:
                self._drained.note(call.queued)
            self._unqueue(call)
            call.deliver(reply)
            if call.done:
                self._ended.note(1)
                self._forget(reply.id)

    def abort(self, request_id: str) -> bool:
        """Ask the engine to end a request; its caller gets finish reason "abort". False where it isn't open."""
        if request_id not in self._calls:
            return False
        self._link.send(Abort(request_id))
        return True

    def ids(self) -> list[str]:
        return list(self._calls)

    def abandon(self, request_id: str) -> None:
        self._forget(request_id)
        self._ending.add(request_id)
        self._link.send(Abort(request_id))

    def _forget(self, request_id: str) -> None:
        call = self._calls.pop(request_id, None)
        if call is not None:
            self._unqueue(call)
        self._metrics.open.set(len(self._calls))

    def _unqueue(self, call: Call) -> None:
        """It has been answered, or is gone: its prompt waits no more."""
        self._queued -= call.queued
        call.queued = 0


def _prompt_tokens(request: Asked) -> int:
    if isinstance(request, Generate):
        return count(request.prompt)
    if isinstance(request, Score):
        return count(request.prefix) + sum(map(count, request.continuations))
    if isinstance(request, Embed):
        return sum(map(count, request.inputs))
    return 0
