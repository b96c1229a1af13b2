"""What a plan says of its own future: when each operation can begin, and which of them everything else waits for.

Time is counted in tokens, since how long a token takes is known only while the plan runs. Branches not taken count as
if they were. Pure; run.py is its only caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from palmette.runtime.messages.programs import Call, Choose, Divide, Finish, Join, Operation, Plan, Write, reads, writes

Step = tuple[int, int]
"""A track and an operation of it."""

UNBOUNDED = 128  # tokens of an output that has no bound
SCORED = 4  # tokens that a select is worth
CALLED = 1000  # tokens that a call to the client is worth, where it doesn't say


@dataclass(frozen=True, slots=True)
class Forecast:
    """`ready`: when a slot is there; `ends`: when an operation is done, both in tokens from the program's beginning.

    `critical`: operations that the whole waits for, where others beside them need not be first.
    """

    ready: Mapping[int, int]
    ends: Mapping[Step, int]
    critical: frozenset[Step]


def cost(operation: Operation) -> int:
    """About how many tokens an operation takes."""
    match operation:
        case Write(params=params):
            return UNBOUNDED if params[0].max_tokens is None else params[0].max_tokens
        case Choose():
            return SCORED
        case _:
            return 0


def divided(operation: Operation) -> tuple[int, ...]:
    """The tracks that an operation starts."""
    return operation.tracks if isinstance(operation, Divide) else ()


def forecast(plan: Plan) -> Forecast:
    """One pass over the tracks, each after that which starts it; a track that waits for another is looked at again."""
    ready: dict[int, int] = {}
    ends: dict[Step, int] = {}
    before: dict[Step, Step | None] = {}
    writer: dict[int, Step] = {}
    started: dict[int, tuple[int, Step | None]] = {0: (0, None)}
    position = {0: 0}
    while position:
        moved = False
        for track in sorted(position):
            at = position[track]
            operations = plan.tracks[track]
            while at < len(operations):
                step = (track, at)
                behind = started[track] if at == 0 else (ends[track, at - 1], (track, at - 1))
                found = _begins(operations[at], behind, ready, writer, ends, plan)
                if found is None:
                    break
                time, before[step] = found
                ends[step] = time + cost(operations[at])
                _done(operations[at], step, ends[step], ready, writer)
                for child in divided(operations[at]):
                    started[child], position[child] = (ends[step], step), 0
                at, moved = at + 1, True
            position[track] = at
        position = {track: at for track, at in position.items() if at < len(plan.tracks[track])}
        if not moved:
            break  # what is left waits for what never comes; the run will say so
    return Forecast(ready, ends, _critical(plan, ends, before))


def _begins(
    operation: Operation,
    behind: tuple[int, Step | None],
    ready: Mapping[int, int],
    writer: Mapping[int, Step],
    ends: Mapping[Step, int],
    plan: Plan,
) -> tuple[int, Step | None] | None:
    """When an operation can begin, and what it waited for last; None: not known yet."""
    latest = behind
    for value in reads(operation):
        if value.slot not in ready:
            return None
        if ready[value.slot] > latest[0]:
            latest = (ready[value.slot], writer[value.slot])
    if isinstance(operation, Join):
        for track in operation.tracks:
            end = (track, len(plan.tracks[track]) - 1)
            if end not in ends:
                return None
            if ends[end] > latest[0]:
                latest = (ends[end], end)
    return latest


def _done(operation: Operation, step: Step, time: int, ready: dict[int, int], writer: dict[int, Step]) -> None:
    later = CALLED if isinstance(operation, Call) else 0
    for slot in writes(operation):
        if time + later >= ready.get(slot, 0):
            ready[slot], writer[slot] = time + later, step


def _critical(plan: Plan, ends: Mapping[Step, int], before: Mapping[Step, Step | None]) -> frozenset[Step]:
    finishes = [(time, step) for step, time in ends.items() if isinstance(plan.tracks[step[0]][step[1]], Finish)]
    if len(finishes) < 2:
        return frozenset()  # nothing runs beside anything
    at: Step | None = max(finishes)[1]
    path: set[Step] = set()
    while at is not None and at not in path:
        path.add(at)
        at = before[at]
    alike = {time for time, _ in finishes if time == max(finishes)[0]}
    beside = [time for time, step in finishes if step not in path]
    return frozenset(path) if any(time not in alike for time in beside) else frozenset()
