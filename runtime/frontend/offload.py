"""Work that would hold up the event loop, done in a few threads: long texts, large bodies, templates.

Owned by the frontend; the api uses it too. Knows nothing of what the work is.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from palmette.runtime.errors import Overloaded

T = TypeVar("T")

THREADS = 2
MOST_WAITING = 1024


class Offload:
    """A bounded pool: `threads` pieces of work run at a time, `most` are held at most, running ones included."""

    def __init__(self, *, threads: int = THREADS, most: int = MOST_WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="palmette-offload")
        self._most = most
        self._held = 0

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, which runs in a thread. Raises Overloaded where too much is waiting, and what it
        raises. Cancelling takes it out of the queue, where it has not begun.

        What the work leaves behind is freed in the thread too, also where it raises: a traceback would keep it."""
        if self._held >= self._most:
            raise Overloaded(
                f"{self._held} prompts wait to be encoded; at most {self._most} can.", hint="Try again in a moment."
            )
        self._held += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _tidied, work)
        finally:
            self._held -= 1

    def free(self, things: list[object]) -> None:
        """Empties `things` in a thread: giving up a hundred thousand objects takes milliseconds."""
        with contextlib.suppress(RuntimeError):  # the pool is closed: then at once
            self._pool.submit(things.clear)

    def close(self) -> None:
        """Drops what hasn't begun; doesn't wait for what has."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _tidied(work: Callable[[], T]) -> T:
    try:
        return work()
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
