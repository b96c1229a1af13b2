"""The language's event loop: one daemon thread a process, started at first use.

Backends that live on a loop of their own (an engine) run there; programs written as coroutines, and backends without
a loop, run here.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from palmette.lang.arrival import Arrival
from palmette.runtime.errors import InvalidRequest

T = TypeVar("T")

READ_LATER = "In an async program write `await s.aget('x')`, `await s.atext()` or `await s.async_()`."

EXIT_SECONDS = 1.0  # that Python's exit waits for what is cancelled

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_running: set[asyncio.Task[Any]] = set()


def language_loop() -> asyncio.AbstractEventLoop:
    """The process's language loop; starts its thread at first use."""
    global _loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_loop.run_forever, name="palmette-lang", daemon=True)
            thread.start()
            atexit.register(_end, _loop, thread)
        return _loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """At Python's exit: what still runs ends while all that it needs is there."""

    async def ended() -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    if thread.is_alive():
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(ended(), loop).result(EXIT_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(EXIT_SECONDS)


def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that runs to its end though nobody else keeps it, as of a state that its program has dropped: event loops
    hold their tasks weakly, and so do connections. Called on the loop."""
    task = loop.create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def refuse_on(loop: asyncio.AbstractEventLoop) -> None:
    """Raise where waiting would stop the very loop that is waited for."""
    if asyncio._get_running_loop() is loop:
        raise InvalidRequest(
            "This line waits for a program's result on the event loop that computes it.",
            hint=READ_LATER,
        )


def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on `loop` from another thread and wait for it. An interrupt (Ctrl-C) cancels it."""
    result: Arrival[T] = Arrival()
    tasks: list[asyncio.Task[None]] = []

    async def arriving() -> None:
        try:
            result.set_result(await work)
        except BaseException as error:
            result.set_exception(error)

    try:
        refuse_on(loop)
        loop.call_soon_threadsafe(lambda: tasks.append(begin(loop, arriving())))
    except (InvalidRequest, RuntimeError):  # the loop is closed
        work.close()
        raise
    try:
        return result.result()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        raise


def finished(given: Any) -> Any:
    """`given`; where it is awaitable, what it gives: it is awaited on the language's loop while this thread waits.

    Raises InvalidRequest in a thread that runs an event loop, which would stand still.
    """
    if not inspect.isawaitable(given):
        return given
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_on(language_loop(), _awaited(given))
    if inspect.iscoroutine(given):
        given.close()
    raise InvalidRequest(
        "The function gives a coroutine, which a coroutine program has to await itself.",
        hint="Write s[name] = await function(…).",
    )


async def _awaited(given: Awaitable[T]) -> T:
    return await given
