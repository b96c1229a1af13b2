"""An event loop in virtual time: frontends, programs and a simulated engine in one thread, without noise.

While something can run, no time passes. Where nothing can, the engine takes its next step, which lasts as long as
predicted; where it has nothing to do either, the clock goes on to the next timer. So whole programs (`asyncio.sleep`
for their tools included) run against the real scheduler and tree in an order that is the same every time. Called by
benchmarks.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Sequence
from typing import Any

from palmette.runtime.errors import InternalError
from palmette.runtime.messages.replies import Reply
from palmette.runtime.messages.requests import Request
from palmette.runtime.simulation.core import SimulatedCore
from palmette.runtime.simulation.worker import VirtualTime

Step = Callable[[], bool]
"""Does something that takes virtual time, if there is something to do, and says whether there was."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is `clock`. No files, sockets or threads: nothing from outside can wake it."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock
        self._idle = _Idle(clock)
        super().__init__(self._idle)

    def time(self) -> float:
        return self._clock.now

    def while_idle(self, step: Step) -> None:
        """Who is asked for a step before the clock goes on to the next timer."""
        self._idle.step = step


class _Idle(selectors.SelectSelector):
    """What the loop asks when it has nothing to run."""

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__()
        self.step: Step = lambda: False
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        """`timeout`: seconds to the next timer; 0 where something can run, None where no timer is left."""
        if timeout == 0 or self.step():
            return []
        if timeout is None:
            raise InternalError("Everything waits, and nothing is going to come.")
        self._clock.now += timeout
        return []


class SimulatedLink:
    """The link to a simulated engine (runtime/link.py's EngineLink), whose steps a VirtualLoop takes."""

    def __init__(self, core: SimulatedCore, loop: VirtualLoop) -> None:
        self._core = core
        self._loop = loop
        self._deliver: Callable[[Sequence[Reply]], None] | None = None
        loop.while_idle(self._step)

    def start(self, deliver: Callable[[Sequence[Reply]], None]) -> None:
        self._deliver = deliver
        deliver([self._core.ready])

    def send(self, request: Request) -> None:
        self._core.submit(request)

    async def close(self) -> None:
        """Nothing to release."""

    def _step(self) -> bool:
        assert self._deliver is not None, "a link is started before it sends"
        if not self._core.has_work:
            return False
        replies = self._core.step()
        if replies:
            self._loop.call_soon(self._deliver, replies)
        return True
