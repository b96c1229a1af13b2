"""Server-sent events and clients that go away: the request of a client that has left is aborted at once.

Knows ASGI, not what is streamed. Used by every surface that answers with a stream or waits for the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import orjson
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from palmette.runtime.api.errors import as_ours
from palmette.runtime.api.request_ids import RequestName, name_in
from palmette.runtime.errors import Aborted, PalmetteError

AT_ONCE = 8  # items of several streams, or streams begun, in one turn of the loop

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def event(data: Any) -> bytes:
    """One event whose data is `data` as JSON."""
    return b"data: " + orjson.dumps(data) + b"\n\n"


class Closable(Protocol):
    async def aclose(self) -> None: ...


@runtime_checkable
class Begins(Protocol):
    async def begun(self) -> None: ...


class EventStream(Response):
    """An ASGI answer made of server-sent events.

    `events` yields encoded events; an error in it becomes one last event made by `on_error`. When the client goes
    away the iterator is closed within the same turn of the loop, wherever it waits. What fails before the first event,
    while it waits for those owned to have begun, is raised: the answer is that error.
    """

    def __init__(
        self,
        events: AsyncIterator[bytes],
        on_error: Callable[[PalmetteError], bytes],
        *,
        headers: Mapping[str, str] | None = None,
        owned: Sequence[Closable] = (),
    ) -> None:
        """`owned` is closed at the end too: iterators that `events` may not have begun to read."""
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self.headers["content-type"] = "text/event-stream; charset=utf-8"
        self._events = events
        self._on_error = on_error
        self._owned = owned

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.ensure_future(self._write(send, name_in(scope)))
        watcher = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({writer, watcher}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writer, watcher):
                task.cancel()
            await asyncio.gather(writer, watcher, return_exceptions=True)
            for owned in self._owned:
                await owned.aclose()
        if writer.done() and not writer.cancelled() and (error := writer.exception()) is not None:
            raise error

    async def _write(self, send: Send, name: RequestName) -> None:
        for owned in self._owned:
            if isinstance(owned, Begins):
                await owned.begun()  # what it raises is an answer, since the stream hasn't begun
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for data in self._events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except Exception as error:  # the boundary of a stream: told to its client as the last event
            data = self._on_error(as_ours(error, name))
            await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            close = getattr(self._events, "aclose", None)
            if close is not None:
                await close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes away (raises Aborted then)."""
    worker = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait({worker, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not worker.done():
            raise Aborted("The client went away.")
        return worker.result()
    finally:
        for task in (worker, watcher):
            task.cancel()
        await asyncio.gather(worker, watcher, return_exceptions=True)


async def merged(sources: Sequence[AsyncIterator[T]]) -> AsyncIterator[tuple[int, T]]:
    """Items of all `sources` as they come, each with its source's index. The first error ends it.

    Each source is one item ahead of the reader at most: what a slow one doesn't take stays where it is small.
    """
    if len(sources) == 1:
        async for item in sources[0]:
            yield 0, item
        return
    queue: asyncio.Queue[tuple[int, T] | Exception | None] = asyncio.Queue(len(sources))
    at_once = 0  # items that were there already, one behind the other

    async def pump(index: int, source: AsyncIterator[T]) -> None:
        try:
            async for item in source:
                await queue.put((index, item))
            await queue.put(None)
        except Exception as error:  # handed over to the reader, which raises it
            await queue.put(error)

    tasks: list[asyncio.Future[None]] = []
    running = len(sources)
    try:
        for index, source in enumerate(sources):
            tasks.append(asyncio.ensure_future(pump(index, source)))
            if len(tasks) % AT_ONCE == 0:
                await asyncio.sleep(0)
        while running:
            at_once = 0 if queue.empty() else at_once + 1
            if at_once == AT_ONCE:
                at_once = 0
                await asyncio.sleep(0)  # whoever reads has had enough of the loop's time
            got = await queue.get()
            if isinstance(got, Exception):
                raise got
            if got is None:
                running -= 1
            else:
                yield got
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
