"""Who runs a program's body, where that is not its caller: the thread or task that writes its states, and what a reader
may therefore wait for. One for a program's state and all its forks.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from palmette.lang.arrival import Arrival
from palmette.lang.loop import READ_LATER
from palmette.lang.threads import Job
from palmette.runtime.errors import InvalidRequest


class Author:
    __slots__ = ("_job", "_kept", "_who")

    def __init__(self) -> None:
        self._who: object = None  # None until the body begins, or where nobody said
        self._job: Job | None = None
        self._kept: list[object] = []

    def begins(self) -> None:
        """The body begins, in this thread or task."""
        self._who = _whoami()

    def waits(self, job: Job) -> None:
        """The body runs when it gets a thread; who waits for it may hurry it."""
        self._job = job

    def keep(self, running: object) -> None:
        """Hold what runs the body, or what it computes: event loops hold tasks weakly."""
        self._kept.append(running)

    def is_another(self) -> bool:
        """Whether the asker is not the one who writes. If so it is about to wait for them."""
        another = self._who != _whoami()
        if another and self._job is not None:
            self._job.hurry()
        return another

    def refuse_to_stall(self, wanted: Arrival[Any]) -> None:
        """A coroutine program that waits in its thread stops everything else on its loop. Raises InvalidRequest."""
        if not wanted.done() and isinstance(self._who, asyncio.Task) and self._who is _whoami():
            raise InvalidRequest(
                "This line of a coroutine program would stop its event loop until there is a result.", hint=READ_LATER
            )


def _whoami() -> object:
    """The running task, or else the thread."""
    loop = asyncio._get_running_loop()
    task = asyncio.current_task(loop) if loop is not None else None
    return task if task is not None else threading.get_ident()
