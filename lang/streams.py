"""Text that is still growing, read from threads and event loops alike.

Written by the interpreter on its loop; read by `text_iter` (any thread) and `text_async_iter` (any loop).
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from palmette.lang.arrival import Arrival
from palmette.lang.errors import ProgramError


class Signal:
    """Wakes waiters in threads and on loops. `lock` guards the state that is waited for."""

    __slots__ = ("_waiters", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._waiters: list[Arrival[None]] = []

    def waiter(self) -> Arrival[None]:
        """Done at the next `notify`. Call with `lock` held."""
        waiter: Arrival[None] = Arrival()
        self._waiters.append(waiter)
        return waiter

    def notify(self) -> None:
        """Wake every waiter. Call with `lock` held."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.set_result(None)


class Piece(NamedTuple):
    """A piece of text and what is known of its generation by then."""

    text: str
    meta: dict[str, Any]


class TextStream:
    """Pieces in order, then an end, which may be a failure. Any number of readers, each from the start."""

    __slots__ = ("_ended", "_error", "_pieces", "_signal")

    def __init__(self) -> None:
        self._signal = Signal()
        self._pieces: list[Piece] = []
        self._ended = False
        self._error: ProgramError | None = None

    def push(self, text: str, meta: dict[str, Any] | None = None) -> None:
        with self._signal.lock:
            self._pieces.append(Piece(text, meta or {}))
            self._signal.notify()

    def end(self, error: ProgramError | None = None) -> None:
        """No more pieces. The first call counts."""
        with self._signal.lock:
            if not self._ended:
                self._ended, self._error = True, error
                self._signal.notify()

    def __iter__(self) -> Iterator[Piece]:
        seen = 0
        while True:
            pieces, waiter = self._after(seen)
            seen += len(pieces)
            yield from pieces
            if waiter is not None:
                waiter.result()
            elif not pieces:
                return

    async def __aiter__(self) -> AsyncIterator[Piece]:
        seen = 0
        while True:
            pieces, waiter = self._after(seen)
            seen += len(pieces)
            for piece in pieces:
                yield piece
            if waiter is not None:
                await waiter
            elif not pieces:
                return

    def _after(self, seen: int) -> tuple[list[Piece], Arrival[None] | None]:
        """Pieces not seen yet, or else what to wait for; neither: the end. Raises the failure behind the last piece."""
        with self._signal.lock:
            pieces = self._pieces[seen:]
            if pieces:
                return pieces, None
            if not self._ended:
                return [], self._signal.waiter()
            if self._error is not None:
                raise self._error.again()
            return [], None
