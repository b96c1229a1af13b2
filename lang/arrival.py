"""A value that one thread brings and any number of threads and coroutines wait for.

What `concurrent.futures.Future` is, at a third of its cost: every variable of a program has one. Nobody can cancel it:
a reader who gives up doesn't take the value from the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")

_lock = threading.Lock()  # one for all of them: it is held for a few instructions only


class Arrival(Generic[T]):
    """`result()` waits in a thread, `await arrival` in a coroutine; both raise what was set as the exception."""

    __slots__ = ("_callbacks", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], object]] | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: T) -> None:
        """The value is there. The first call, of this or set_exception, counts."""
        self._settle(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._settle(None, error)

    def on_done(self, callback: Callable[[], object]) -> None:
        """Call back once it is there, in the thread that brings it; at once where it is."""
        with _lock:
            if not self._done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        callback()

    def exception(self) -> BaseException | None:
        """Wait in this thread; the failure, if it is one."""
        if not self._done:
            gate = threading.Lock()
            gate.acquire()
            self.on_done(gate.release)
            gate.acquire()
        return self._error

    def result(self) -> T:
        if self.exception() is not None:
            assert self._error is not None
            raise self._error
        return self._value  # type: ignore[return-value]

    def __await__(self) -> Generator[object, None, T]:
        """Costs a wake-up of the loop only where another thread brings it."""
        if not self._done:
            loop = asyncio.get_running_loop()
            arrived = loop.create_future()

            def wake() -> None:
                if not arrived.done():
                    arrived.set_result(None)

            def done() -> None:
                if asyncio._get_running_loop() is loop:
                    wake()
                else:
                    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there any more
                        loop.call_soon_threadsafe(wake)

            self.on_done(done)
            yield from arrived
        return self.result()

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        with _lock:
            if self._done:
                return
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()
