"""Responses that are kept: bounded by their number and bytes, each for the caller that made it.

A conversation is a chain of turns. Turns are shared by all responses that go on from them, and counted once, for as
long as one of those is kept. Used by routes.py; knows nothing of how responses are made.
"""

from __future__ import annotations

import reprlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import orjson

from palmette.runtime.api.limits import KEPT_RESPONSE_BYTES, MOST_RESPONSES
from palmette.runtime.api.responses.items import Item, response_of
from palmette.runtime.api.responses.output import ENDED, Status
from palmette.runtime.errors import InvalidRequest, ResponseNotFound

ENTRY_BYTES = 1000  # of what a kept response takes beside its texts


class Turn:
    """What one response added to its conversation: its input and its output, as JSON."""

    def __init__(self, given: Sequence[Item], said: Sequence[Item], previous: Turn | None) -> None:
        self._given = orjson.dumps(given)
        self._said = orjson.dumps(said)
        self.previous = previous
        self.holders = 0  # kept responses and turns that need it

    @property
    def size(self) -> int:
        return len(self._given) + len(self._said)

    def input(self) -> list[Item]:
        items: list[Item] = orjson.loads(self._given)
        return items

    def output(self) -> list[Item]:
        items: list[Item] = orjson.loads(self._said)
        return items


def turns_up_to(turn: Turn | None) -> list[Turn]:
    """The conversation up to and with `turn`, the oldest first."""
    turns: list[Turn] = []
    while turn is not None:
        turns.append(turn)
        turn = turn.previous
    return turns[::-1]


def conversation(turns: Sequence[Turn]) -> list[Item]:
    """Their items."""
    return [item for turn in turns for item in (*turn.input(), *turn.output())]


class Running(Protocol):
    """A background response, running or ended."""

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        ...

    def answer(self) -> bytes:
        """The response as it is now, as JSON."""
        ...

    def stop(self) -> None:
        """Abort it. Idempotent."""
        ...


R = TypeVar("R", bound=Running)


@dataclass(eq=False)
class Kept(Generic[R]):
    """A kept response. `turn` has no output while it is running. `ended`: the response as JSON, None until then."""

    id: str
    tenant: str
    turn: Turn
    status: Status
    ended: bytes | None = None
    work: R | None = None
    size: int = 0  # as the store has counted it, without its turn

    @property
    def running(self) -> bool:
        return self.status not in ENDED

    def answer(self) -> bytes:
        if self.ended is not None:
            return self.ended
        assert self.work is not None, "only background responses are kept before their end"
        return self.work.answer()


class ResponseStore(Generic[R]):
    """The kept responses by id, the least recently used first. Those that run stay."""

    def __init__(self, *, most: int = MOST_RESPONSES, most_bytes: int = KEPT_RESPONSE_BYTES) -> None:
        self.bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, Kept[R]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, kept: Kept[R]) -> None:
        self._kept[kept.id] = kept
        self._hold(kept.turn)
        self._count(kept)
        self._make_room()

    def settle(self, kept: Kept[R], *, status: Status, answer: bytes, turn: Turn) -> None:
        """A response that ran has ended; it may have been deleted meanwhile."""
        kept.status, kept.ended = status, answer
        if self._kept.get(kept.id) is not kept:
            return
        self._hold(turn)
        self._release(kept.turn)
        kept.turn = turn
        self._count(kept)
        self._make_room()

    def recount(self, kept: Kept[R]) -> None:
        """What works on it holds more than it did."""
        if self._kept.get(kept.id) is kept:
            self._count(kept)
            self._make_room()

    def get(self, response_id: str, tenant: str, param: str | None = None) -> Kept[R]:
        """Raises ResponseNotFound, for those of others too. `param`: the field that names it."""
        kept = self._kept.get(response_id)
        if kept is None or kept.tenant != tenant:
            raise ResponseNotFound(
                f"Response {reprlib.repr(response_id)} is not known here: it was not stored, was deleted, made room for"
                " others, or the server restarted.",
                hint="Send the conversation again as input.",
                param=param,
            )
        self._kept.move_to_end(response_id)
        return kept

    def remove(self, response_id: str, tenant: str) -> None:
        """What still runs is aborted. Raises ResponseNotFound."""
        kept = self.get(response_id, tenant)
        self._drop(kept)
        if kept.work is not None:
            kept.work.stop()

    def turn_behind(self, response_id: str, tenant: str) -> Turn:
        """The turn that a conversation goes on from. Raises ResponseNotFound, and InvalidRequest for a response that
        runs or failed."""
        param = "previous_response_id"
        kept = self.get(response_id, tenant, param)
        if kept.running:
            raise InvalidRequest(
                f"Response {response_id!r} is still being made: nothing can follow it yet.",
                hint="Wait for its end, or cancel it.",
                param=param,
            )
        if kept.status == "failed":
            raise InvalidRequest(
                f"Response {response_id!r} failed, so there is no answer to go on from.",
                hint="Go on from the response before it.",
                param=param,
            )
        return kept.turn

    def turn_with(self, item_id: str, tenant: str) -> Turn | None:
        """The turn that has the item of this id, if it has an id of ours and its response is kept."""
        kept = self._kept.get(response_of(item_id) or "")
        if kept is None or kept.tenant != tenant:
            return None
        self._kept.move_to_end(kept.id)
        return kept.turn

    # --- counting ---

    def _make_room(self) -> None:
        """The least recently used go, until all that is left fits."""
        for kept in list(self._kept.values()):
            if len(self._kept) <= self._most and self.bytes <= self._most_bytes:
                return
            if not kept.running:
                self._drop(kept)

    def _drop(self, kept: Kept[R]) -> None:
        del self._kept[kept.id]
        self.bytes -= kept.size
        self._release(kept.turn)

    def _count(self, kept: Kept[R]) -> None:
        """For the first time, or anew."""
        self.bytes -= kept.size
        kept.size = ENTRY_BYTES + len(kept.ended or b"") + (kept.work.size if kept.work is not None else 0)
        self.bytes += kept.size

    def _hold(self, turn: Turn | None) -> None:
        while turn is not None:
            turn.holders += 1
            if turn.holders > 1:
                return
            self.bytes += turn.size
            turn = turn.previous

    def _release(self, turn: Turn | None) -> None:
        while turn is not None:
            turn.holders -= 1
            if turn.holders:
                return
            self.bytes -= turn.size
            turn = turn.previous
