"""What the tracks of one run share: the request, its values, the events, the tasks, and the program's place among
others. Made by run.py; used by the tracks and what they are made of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import cached_property
from typing import Any, Protocol

import msgspec

from palmette.runtime.frontend.branch import Branch
from palmette.runtime.frontend.generation import Generation
from palmette.runtime.frontend.programs.forecast import Forecast, forecast
from palmette.runtime.frontend.programs.gate import Claim, Gate
from palmette.runtime.frontend.programs.opening import Opening
from palmette.runtime.frontend.programs.size import largest, opening
from palmette.runtime.frontend.programs.slots import Lost, Slots
from palmette.runtime.messages.hints import Hint
from palmette.runtime.messages.programs import Call, Divide, ProgramEvent, RunProgram, writes
from palmette.runtime.messages.requests import Scheduling
from palmette.runtime.messages.sampling import SamplingParams

TOKEN_SECONDS = 0.02  # until something has been measured
SOON_SECONDS = 0.25  # at least, to the next verb of a branch that waits for nothing: it may have to queue
SOON_TOKENS = 20  # likewise, in the time that a token takes
TOOL_SECONDS = 30.0  # that a client's function may take, where it doesn't say
MARGIN = 1.5  # by which a forecast may be too early


class ProgramEngine(Protocol):
    """What a run needs of the frontend."""

    gate: Gate

    @property
    def idle(self) -> bool:
        """Whether it has asked its engine for nothing that isn't answered."""
        ...

    async def open_branch(self, namespace: str = "", scheduling: Scheduling = Scheduling()) -> Branch: ...

    def hint(self, hint: Hint) -> None: ...

    def submit_packed(
        self, prompt: bytes, params: SamplingParams, *, namespace: str = "", scheduling: Scheduling = Scheduling()
    ) -> Generation: ...


class TrackLike(Protocol):
    """What a run needs of a track."""

    number: int
    branch: Branch
    began: int  # tokens of its branch that its parent's has too
    away: bool  # it waits so long that nothing is kept for it
    waits_for_tracks: bool  # or for what they write

    async def run(self) -> None: ...


class Shared:
    """One run of a plan, as its tracks see it. `over`: a track's operations are done; `quiet`: and those of all that it
    started."""

    def __init__(self, engine: ProgramEngine, request: RunProgram, scheduling: Scheduling) -> None:
        self.engine = engine
        self.request = request
        self.plan = request.plan
        self.scheduling = msgspec.structs.replace(scheduling, under_way=True)
        self.claim = Claim(largest(self.plan), Opening(opening(self.plan)), scheduling.tenant, scheduling.priority)
        self.pace = Pace()
        self.slots = Slots()
        self.tracks: dict[int, TrackLike] = {}
        self.over = [asyncio.Event() for _ in self.plan.tracks]
        self.quiet = [asyncio.Event() for _ in self.plan.tracks]
        self.events: asyncio.Queue[ProgramEvent | None] = asyncio.Queue()  # None: that was all
        self._calls = {
            operation.slot: operation
            for operations in self.plan.tracks
            for operation in operations
            if isinstance(operation, Call)
        }
        self._under_way = 0  # tracks
        self._tasks: set[asyncio.Task[None]] = set()
        self._beside: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Task[None] | None = None

    # Tasks

    def tell(self, event: ProgramEvent | None) -> None:
        """An event (None: that was all), once what is just being done has asked the engine for what comes next."""
        asyncio.get_running_loop().call_soon(self.events.put_nowait, event)

    def hint(self, hint: Hint) -> None:
        """Tell the cache, behind what is just asked of the engine."""
        asyncio.get_running_loop().call_soon(self.engine.hint, hint)

    def start(self, track: TrackLike) -> None:
        self.tracks[track.number] = track
        self._under_way += 1
        task = asyncio.get_running_loop().create_task(track.run())
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._quiet(track, done))

    def ended(self, track: TrackLike) -> None:
        """Its operations are done; it may have something left to tell the cache."""
        self.over[track.number].set()
        self.weigh()
        self._under_way -= 1
        if not self._under_way:
            self.tell(None)

    def _quiet(self, track: TrackLike, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self.over[track.number].is_set():  # it was cancelled, or broke
            self.ended(track)
        self.quiet[track.number].set()

    async def told(self) -> None:
        """Returns once the cache has been told everything."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that nobody waits for; its failure is nobody's either."""
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)

        def ended(done: asyncio.Task[None]) -> None:
            self._beside.discard(done)
            if not done.cancelled():
                done.exception()

        task.add_done_callback(ended)

    def never(self, track: int, failure: Lost) -> None:
        """A track is not going to be started."""
        if track in self.tracks:
            return
        self.over[track].set()
        self.quiet[track].set()
        for operation in self.plan.tracks[track]:
            self.slots.lose(writes(operation), failure)
            if isinstance(operation, Divide):
                for child in operation.tracks:
                    self.never(child, failure)

    async def stop(self) -> None:
        """Everything ends now, and gives back what it holds, also where who waits for that is cancelled."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        tasks = [*self._tasks, *self._beside]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for track in self.tracks.values():
            await track.branch.close()

    # What is known of the future

    @cached_property
    def forecast(self) -> Forecast:
        """Made when something first asks, as it takes some time."""
        return forecast(self.plan)

    @property
    def held(self) -> int:
        """Tokens of the live branches."""
        return sum(track.branch.state.length - track.began for track in self._live())

    def weigh(self) -> None:
        """Tell the gate what the live branches hold. They are away where the last that goes on waits for very long."""
        goes_on = [track for track in self._live() if not track.waits_for_tracks]
        self.engine.gate.holds(self.claim, self.held, away=bool(goes_on) and all(track.away for track in goes_on))

    def _live(self) -> list[TrackLike]:
        return [track for track in self.tracks.values() if track.number == 0 or not self.over[track.number].is_set()]

    def is_called(self, slot: int) -> bool:
        """Whether the client's function gives it."""
        return slot in self._calls

    def seconds_until(self, slot: int, now: int) -> float:
        """How long it is until a slot is there, as far as can be told; `now`: in tokens."""
        call = self._calls.get(slot)
        if call is not None:
            return MARGIN * (TOOL_SECONDS if call.seconds is None else call.seconds)
        return max(0.0, self.forecast.ready.get(slot, now) - now) * self.pace.token_seconds * MARGIN


class Pace:
    """How long outputs have taken so far."""

    def __init__(self) -> None:
        self._tokens = 0
        self._seconds = 0.0

    def measured(self, tokens: int, seconds: float) -> None:
        self._tokens += tokens
        self._seconds += seconds

    @property
    def token_seconds(self) -> float:
        return self._seconds / self._tokens if self._tokens else TOKEN_SECONDS

    @property
    def soon(self) -> float:
        """Seconds to the next verb of a branch that waits for nothing."""
        return max(SOON_SECONDS, SOON_TOKENS * self.token_seconds)
