"""The calls of one track to the client's functions: asked for once their arguments are there, answered by the client.

Called by the track and, with what the client gave, by run.py.
"""

from __future__ import annotations

import asyncio

from palmette.runtime.errors import PalmetteError
from palmette.runtime.frontend.programs.shared import Shared
from palmette.runtime.frontend.programs.slots import Lost
from palmette.runtime.messages.programs import Call, ProgramEvent, Value


class ClientCalls:
    """A call doesn't stop its track: what needs its value waits for the slot."""

    def __init__(self, shared: Shared, track: int) -> None:
        self._shared = shared
        self._track = track
        self._asked: dict[int, int] = {}  # operations to slots
        self._called: list[int] = []

    def begin(self, operation: Call, at: int) -> bool:
        """Whether the client could be asked at once. `at`: the operation's number in its track."""
        self._called.append(operation.slot)
        ready = all(self._shared.slots[value.slot].done() for value in _values(operation))
        if ready:
            self._ask(operation, at)
        else:
            self._shared.beside(self._asking(operation, at))
        return ready

    def answered(self, operation: int) -> int | None:
        """The slot that the client was asked for by this operation, once; None where it wasn't."""
        return self._asked.pop(operation, None)

    async def all_answered(self) -> None:
        """Raises Lost."""
        for slot in self._called:
            await asyncio.shield(self._shared.slots[slot])

    async def _asking(self, operation: Call, at: int) -> None:
        for value in _values(operation):
            await asyncio.wait([self._shared.slots[value.slot]])
        self._ask(operation, at)

    def _ask(self, operation: Call, at: int) -> None:
        """The client, now that the arguments are there, or lost."""
        shared, slots = self._shared, self._shared.slots
        try:
            arguments = tuple(slots.read(each) if isinstance(each, Value) else each for each in operation.arguments)
        except Lost as failure:
            slots.lose((operation.slot,), failure)
            return
        except PalmetteError as error:
            slots.lose((operation.slot,), Lost(error, self._track, at))
            return
        self._asked[at] = operation.slot
        shared.tell(ProgramEvent(track=self._track, operation=at, arguments=arguments))


def _values(operation: Call) -> list[Value]:
    return [each for each in operation.arguments if isinstance(each, Value)]
