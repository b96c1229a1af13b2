"""Runs a compiled program beside the frontend: its tracks as branches, side by side, in the order that its plan gives.

What a track appends waits for the values in it only where it stands; what two tracks don't need of each other runs at
once. Since the plan says what comes, the gate lets in as many programs as the pool has room for, and the engine is
told which path is used again and when, which never again, and which waits for a client's function. None of that
changes a token. Made by Frontend.run_program; knows no HTTP and no scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend.programs.shared import ProgramEngine, Shared
from palmette.runtime.frontend.programs.slots import Lost
from palmette.runtime.frontend.programs.track import Track
from palmette.runtime.messages.programs import CallResult, ProgramEvent, RunProgram
from palmette.runtime.messages.requests import Scheduling

TURNS = 4  # of the event loop, in which what waited for a value asks the engine for what comes next


class GraphRun:
    """One run of a plan, which has been checked (messages/programs.py)."""

    def __init__(self, engine: ProgramEngine, request: RunProgram, scheduling: Scheduling = Scheduling()) -> None:
        self._engine = engine
        self._shared = Shared(engine, request, scheduling)

    async def events(self) -> AsyncGenerator[ProgramEvent, None]:
        """What the run gives, to the end. Closing the iterator aborts everything."""
        shared, gate = self._shared, self._engine.gate
        try:
            await gate.enter(shared.claim)
            branch = await self._engine.open_branch(shared.request.namespace, shared.scheduling)
            shared.start(Track(shared, 0, branch, behind_space=True))
            while (event := await shared.events.get()) is not None:
                yield event
            yield ProgramEvent(over=True)
            await shared.told()
        finally:
            try:
                await shared.stop()
            finally:
                gate.leave(shared.claim)

    def ready(self) -> list[ProgramEvent]:
        """Those of its events that are there already, for whoever hands on many at once."""
        events, found = self._shared.events, list[ProgramEvent]()
        while not events.empty():
            event = events.get_nowait()
            if event is None:
                events.put_nowait(None)
                break
            found.append(event)
        return found

    async def answer(self, result: CallResult) -> None:
        """What the client's function gave; returns behind what goes on with it. Raises InvalidRequest for one that
        wasn't asked for."""
        track, slots = self._shared.tracks.get(result.track), self._shared.slots
        slot = track.calls.answered(result.operation) if isinstance(track, Track) else None
        if slot is None:
            raise InvalidRequest(f"Operation {result.operation!r} of track {result.track!r} asked for nothing.")
        if result.error is not None:
            error = InvalidRequest(f"The program's function failed: {result.error}")
            slots.lose((slot,), Lost(error, result.track, result.operation))
        else:
            slots.fill(slot, result.text)
            for _ in range(TURNS):
                await asyncio.sleep(0)
