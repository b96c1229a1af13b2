"""What the chat surfaces share: turns opened together, and how much there is to read. Knows no dialect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

from palmette.runtime.api.access import Caller
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.api.surface import LARGE_ANSWER, OPENED_AT_ONCE, Surface, check_outputs
from palmette.runtime.frontend import ChatGeneration
from palmette.runtime.frontend.chats import PreparedTurn
from palmette.runtime.messages.sampling import output_seed

READING = 20  # reading a message, or a part of one, takes as long as writing so many values of an answer
ENOUGH = LARGE_ANSWER // READING + 1  # to be read beside the loop


def pieces(given: Sequence[Any]) -> int:
    """How many messages, items or tools there are, with their parts and the parts of those; counted no further than it
    matters (Surface.beside)."""
    count, lists = 0, [given]
    while lists and count < ENOUGH:
        some = lists.pop()
        count += len(some)
        for each in islice(some, ENOUGH):
            if isinstance(each, dict):
                lists += [value for value in each.values() if isinstance(value, list)]
    return count


def open_chat(
    surface: Surface,
    prepared: PreparedTurn,
    *,
    request_id: str,
    caller: Caller,
    fields: SchedulingFields,
    watched: bool,
) -> ChatGeneration:
    """The one output of a turn. `watched`: it is streamed."""
    return surface.frontend.chats.submit(
        prepared, request_id=request_id, scheduling=fields.scheduling(caller), watched=watched
    )


async def open_chats(
    surface: Surface,
    prepared: PreparedTurn,
    *,
    request_id: str,
    count: int = 1,
    caller: Caller,
    fields: SchedulingFields,
    watched: bool,
) -> list[ChatGeneration]:
    """`count` outputs of one turn: all of them or, where one is refused, none. With a seed, output i has seed + i.
    `watched`: they are streamed. Others have their turn between any few."""
    check_outputs(1, count)
    scheduling = fields.scheduling(caller)
    seed = prepared.params.seed
    opened: list[ChatGeneration] = []
    try:
        for choice in range(count):
            generation = surface.frontend.chats.submit(
                prepared,
                seed=output_seed(seed, choice),
                request_id=request_id if count == 1 else f"{request_id}-{choice}",
                scheduling=scheduling,
                watched=watched,
            )
            opened.append(generation)
            if len(opened) % OPENED_AT_ONCE == 0:
                await asyncio.sleep(0)
    except BaseException:
        for generation in opened:
            generation.close()
        raise
    return opened
