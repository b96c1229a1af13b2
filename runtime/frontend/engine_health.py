"""What the front knows of its engine: whether it is ready, lives, has stalled, is being restarted or can't start.

Told by the engine's own messages and by whoever watches its process. Used by frontend.py; lives in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from palmette.runtime.errors import PalmetteError, from_info
from palmette.runtime.messages.replies import Counters, EngineFailed, EngineProgress, EngineReady, Heartbeat

STALLED_SECONDS = 30.0  # without a heartbeat

Status = Literal["starting", "ok", "stalled", "restarting", "failed"]


@dataclass(frozen=True)
class Health:
    """`heartbeat_age`: seconds since the engine's loop last said that it lives."""

    status: Status
    heartbeat_age: float | None
    detail: str = ""


class EngineHealth:
    """`ready`: what the engine said when it last became so; `counters`: of its last heartbeat; `start_seconds`: what
    its start took, process and model, where somebody said that it was being started."""

    def __init__(self) -> None:
        self.ready: EngineReady | None = None
        self.counters = Counters()
        self.start_seconds: float | None = None
        self._expected: float | None = None  # since when; seconds, monotonic
        self.heartbeat: float | None = None  # seconds, monotonic
        self._trouble: tuple[Status, str] | None = None
        self._start_error: PalmetteError | None = None
        self._answered = asyncio.Event()  # the engine said that it is ready, or that it can't be
        self._on_progress: Callable[[str], None] = lambda text: None

    async def wait_ready(self) -> EngineReady:
        """Waits until the engine has said what it is. Raises its error where it can't start."""
        await self._answered.wait()
        if self._start_error is not None:
            raise self._start_error
        assert self.ready is not None
        return self.ready

    def expect(self, on_progress: Callable[[str], None]) -> None:
        """A new engine is being started; `on_progress` gets what it says about that."""
        self._answered.clear()
        self._expected = time.monotonic()
        self._start_error = None
        self._on_progress = on_progress

    def lost(self, status: Literal["restarting", "failed"], detail: str) -> None:
        """It is gone; the next EngineReady ends that."""
        self._trouble = (status, detail)
        self.counters = Counters()  # what the lost engine ran, held and quarantined went with it

    def note(self, reply: Heartbeat | EngineReady | EngineProgress | EngineFailed) -> None:
        match reply:
            case Heartbeat(counters=counters):
                self.heartbeat = time.monotonic()
                self.counters = counters
            case EngineReady():
                self.heartbeat = time.monotonic()
                self.ready, self._trouble = reply, None
                if self._expected is not None:
                    self.start_seconds = self.heartbeat - self._expected
                self._answered.set()
            case EngineProgress(text=text):
                self._on_progress(text)
            case EngineFailed(error=error):
                self._start_error = from_info(error)
                self._answered.set()

    def health(self) -> Health:
        age = None if self.heartbeat is None else time.monotonic() - self.heartbeat
        if self._trouble is not None:
            return Health(self._trouble[0], age, self._trouble[1])
        if self.ready is None or age is None:
            return Health("starting", age)
        if age > STALLED_SECONDS:
            return Health("stalled", age, f"The engine's loop has been silent for {age:.0f} s.")
        return Health("ok", age)
