"""The values of one run: each is there, still to come, or lost with what failed. Called by run.py and the tracks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from palmette.runtime.errors import InvalidRequest, PalmetteError
from palmette.runtime.messages.programs import Scalar, Value, resolved

NOT_TAKEN = InvalidRequest("This was not written: the branch that writes it was not taken.")


class Lost(Exception):
    """A value that isn't coming: what failed, and where (track and operation)."""

    def __init__(self, error: PalmetteError, track: int, operation: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.origin = (track, operation)

    @property
    def not_taken(self) -> bool:
        """Nothing failed: the program took another way."""
        return self.error is NOT_TAKEN


class Slots:
    """By number. A slot is filled or lost once; what comes later is left out."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[str]] = {}

    def __getitem__(self, number: int) -> asyncio.Future[str]:
        """Who awaits it must shield it. Raises Lost."""
        if number not in self._futures:
            self._futures[number] = asyncio.get_running_loop().create_future()
        return self._futures[number]

    def fill(self, number: int, text: str) -> None:
        if not self[number].done():
            self[number].set_result(text)

    def lose(self, numbers: Iterable[int], failure: Lost) -> None:
        """These get no value any more."""
        for number in numbers:
            slot = self[number]
            if not slot.done():
                slot.set_exception(failure)
                slot.exception()  # nobody has to ask

    def read(self, value: Value) -> Scalar:
        """A value that is there. Raises InvalidRequest where its text is no such thing."""
        text = self[value.slot].result()
        try:
            return resolved(value, text)
        except ValueError as error:
            raise InvalidRequest(f"{text!r:.80} is no {value.changes[-1]}: {error}.") from None
