"""How much a plan will come to hold in the cache, and what it begins with, as far as the plan alone tells.

Text is counted in characters: how many make a token is known only once some has been encoded. Pure; called by run.py.
"""

from __future__ import annotations

from typing import NamedTuple

from palmette.runtime.frontend.programs.forecast import cost
from palmette.runtime.messages.branches import Text
from palmette.runtime.messages.programs import Call, Choose, Divide, Insert, Operation, Plan, Write

RESULT = 64  # tokens that a client's function gives
USUAL = 4.0  # characters that make a token


class Size(NamedTuple):
    """`characters` of text that is known, and `tokens` of outputs and values that are to come."""

    characters: int = 0
    tokens: int = 0

    def plus(self, other: Size) -> Size:
        return Size(self.characters + other.characters, self.tokens + other.tokens)

    def in_tokens(self, characters: float) -> float:
        """All of it, where so many characters make a token."""
        return self.tokens + self.characters / characters


def largest(plan: Plan) -> Size:
    """The most that the program holds at a time. What forks held is dropped once they have ended; branches that are
    not taken count as if they were."""
    values: dict[int, int] = {}  # tokens of slots

    def of(track: int) -> Size:
        held = most = Size()
        for operation in plan.tracks[track]:
            held = held.plus(_appended(operation, values))
            most = max(most, held.plus(_beside(operation)), key=_about)
            if isinstance(operation, Divide):
                below = held
                for child in operation.tracks:
                    below = below.plus(of(child))
                most = max(most, below, key=_about)
        return most

    return of(0)


def _about(size: Size) -> float:
    return size.in_tokens(USUAL)


def _appended(operation: Operation, values: dict[int, int]) -> Size:
    """What the operation leaves in its track. Notes the sizes of the values that it writes."""
    characters = sum(len(part.text) for part in operation.parts if isinstance(part, Text))
    tokens = sum(values.get(part.value.slot, 0) for part in operation.parts if isinstance(part, Insert))
    if isinstance(operation, Write):
        values.update(dict.fromkeys(operation.slots, cost(operation)))
    elif isinstance(operation, Call):
        values[operation.slot] = RESULT
    return Size(characters, tokens + cost(operation))


def _beside(operation: Operation) -> Size:
    """What the operation holds beside that while it runs: the other outputs, the other choices."""
    if isinstance(operation, Write):
        return Size(0, (len(operation.params) - 1) * cost(operation))
    return Size(sum(map(len, operation.choices))) if isinstance(operation, Choose) else Size()


def opening(plan: Plan) -> str:
    """The text that the program begins with, to its first output or value."""
    text: list[str] = []
    for operation in plan.tracks[0]:
        for part in operation.parts:
            if isinstance(part, Insert):
                return "".join(text)
            if isinstance(part, Text):
                text.append(part.text)
        if isinstance(operation, Write | Choose | Divide):
            break
    return "".join(text)
