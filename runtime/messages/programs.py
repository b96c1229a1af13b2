"""A compiled program: what its states do, in order, as one request; and the events that answer it.

A plan is made by the language's tracing and run beside the frontend. Values that are not there yet are named by slots:
each is the text that some operation of the plan writes. What a value becomes (`resolved`) and whether a condition
`holds` is decided here, so that both sides agree.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from palmette.runtime.errors import ErrorInfo, InvalidRequest
from palmette.runtime.messages.branches import (
    BeginRole,
    ChoiceScores,
    ChoicesMethod,
    Chunk,
    EndRole,
    Part,
    ScoreStep,
    Text,
)
from palmette.runtime.messages.sampling import SamplingParams

Scalar = str | int | float | bool
Change = Literal["int", "float", "bool", "strip", "lower", "upper"]
MOST_OPERATIONS = 10_000


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text of `slot`, changed step by step."""

    slot: int
    changes: tuple[Change, ...] = ()


class Insert(msgspec.Struct, frozen=True, tag=True):
    """Text appended that is not known yet."""

    value: Value


Piece = Text | BeginRole | EndRole | Insert

Comparison = Literal["==", "!=", "<", "<=", ">", ">=", "startswith", "endswith"]


class Compare(msgspec.Struct, frozen=True, tag=True):
    """`left` against a constant or another value."""

    left: Value
    by: Comparison
    right: Scalar | Value


class Every(msgspec.Struct, frozen=True, tag=True):
    """All of `conditions`."""

    conditions: tuple[Condition, ...]


class Some(msgspec.Struct, frozen=True, tag=True):
    """At least one of `conditions`."""

    conditions: tuple[Condition, ...]


Condition = Compare | Every | Some


class _Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """`parts` are appended before it."""

    parts: tuple[Piece, ...] = ()


class Write(_Operation, frozen=True):
    """Generate; one output for each of `params`, of which the first goes on. `slots`: where each one's text goes.

    `spaced`: the parameters instead, where a space stands before the output and the tracing could not know it.
    `thoughts`: a slot of each output's reasoning, where it is told apart.
    """

    params: tuple[SamplingParams, ...]
    slots: tuple[int, ...]
    spaced: tuple[SamplingParams, ...] = ()
    reasoning: str | None = None
    thoughts: tuple[int, ...] = ()
    priority: int | None = None
    timeout: float | None = None  # seconds


class Choose(_Operation, frozen=True):
    """Append the best of `choices`, whose text goes to `slot`."""

    choices: tuple[str, ...]
    method: ChoicesMethod
    slot: int
    priority: int | None = None
    timeout: float | None = None  # seconds

    def step(self, parts: tuple[Part, ...], priority: int | None) -> ScoreStep:
        """It as a step of a branch, behind `parts`."""
        return ScoreStep(
            parts=parts, choices=self.choices, method=self.method, priority=priority, deadline=self.timeout
        )


class Divide(_Operation, frozen=True):
    """Start `tracks` from here, side by side."""

    tracks: tuple[int, ...]


class Join(_Operation, frozen=True):
    """Wait for `tracks`, and append what each has appended since it was started."""

    tracks: tuple[int, ...]


class Mark(_Operation, frozen=True):
    """Remember this place as `slot`'s beginning."""

    slot: int


class Note(_Operation, frozen=True):
    """The text since its Mark, or without one the whole text so far, goes to `slot`."""

    slot: int
    since_mark: bool = True


class Call(_Operation, frozen=True):
    """The client computes `slot` from `arguments`; `seconds`: how long that is expected to take. Doesn't wait."""

    arguments: tuple[Scalar | Value, ...]
    slot: int
    seconds: float | None = None


class Settle(_Operation, frozen=True):
    """Each of `targets` gets the value beside it in `sources`; None: nothing wrote it on this way."""

    targets: tuple[int, ...]
    sources: tuple[Scalar | Value | None, ...]


class Jump(_Operation, frozen=True):
    """Go on at operation `target` of this track where there is no condition, or its truth is `where`."""

    target: int
    condition: Condition | None = None
    where: bool = True


class Finish(_Operation, frozen=True):
    """The track's end."""


Operation = Write | Choose | Divide | Join | Mark | Note | Call | Settle | Jump | Finish


class Plan(msgspec.Struct, frozen=True):
    """`tracks[0]` is the program's state, the others are started by Divide. Slots are numbered from 0."""

    tracks: tuple[tuple[Operation, ...], ...]
    slots: int


class RunProgram(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Run `plan`. Answered by ProgramEvents; the last one has `over`, or the error of the whole.

    `returns`: another run goes on from where this one ends (a chat), so its last state is worth keeping.
    `critical_first`: what the whole program waits for has a higher priority than what runs beside it.
    `reply_seconds`: between events that only bring more of one output, at least, where nobody watches it grow.
    """

    plan: Plan
    namespace: str = ""
    returns: bool = False
    critical_first: bool = False
    reply_seconds: float = 0.0


class ProgramEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something of operation `operation` of `track`, or its error, which ends that track.

    `origin`: the track and operation that failed, where the error came with a value from elsewhere. `output`: which of
    several. `arguments`: of a Call, to be answered with a CallResult. An event without anything says that the
    operation is done. `program`: the id of the run, first of all, where it has one.
    """

    program: str | None = None
    track: int = 0
    operation: int = 0
    output: int = 0
    chunk: Chunk | None = None
    scores: ChoiceScores | None = None
    arguments: tuple[Scalar, ...] | None = None
    error: ErrorInfo | None = None
    origin: tuple[int, int] | None = None
    over: bool = False


class CallResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the client's function gave for a Call: its text, or why it has none."""

    track: int
    operation: int
    text: str = ""
    error: str | None = None


def resolved(value: Value, text: str) -> Scalar:
    """The value of its slot's text. Raises ValueError where the text is no such thing."""
    found: Scalar = text
    for change in value.changes:
        found = _CHANGES[change](str(found))
    return found


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r:.80} is neither True nor False")
    return word == "true"


_CHANGES: Mapping[Change, Callable[[str], Scalar]] = {
    "int": int,
    "float": float,
    "bool": _truth,
    "strip": str.strip,
    "lower": str.lower,
    "upper": str.upper,
}
_COMPARISONS: Mapping[Comparison, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "startswith": str.startswith,
    "endswith": str.endswith,
}


def holds(condition: Condition, read: Callable[[Value], Scalar]) -> bool:
    """Whether `condition` is true of what `read` gives. Raises TypeError for what can't be compared."""
    match condition:
        case Compare(left, by, right):
            return bool(_COMPARISONS[by](read(left), read(right) if isinstance(right, Value) else right))
        case Every(conditions):
            return all(holds(each, read) for each in conditions)
        case Some(conditions):
            return any(holds(each, read) for each in conditions)


def values_of(condition: Condition) -> list[Value]:
    """The values that a condition asks for."""
    if isinstance(condition, Compare):
        return [each for each in (condition.left, condition.right) if isinstance(each, Value)]
    return [value for each in condition.conditions for value in values_of(each)]


def reads(operation: Operation) -> list[Value]:
    """The values that an operation waits for before it begins."""
    found = [part.value for part in operation.parts if isinstance(part, Insert)]
    if isinstance(operation, Jump) and operation.condition is not None:
        found += values_of(operation.condition)
    elif isinstance(operation, Settle):
        found += [source for source in operation.sources if isinstance(source, Value)]
    return found


def writes(operation: Operation) -> tuple[int, ...]:
    """The slots that an operation fills, itself or later."""
    match operation:
        case Write(slots=slots, thoughts=thoughts):
            return (*slots, *thoughts)
        case Choose(slot=slot) | Note(slot=slot) | Call(slot=slot):
            return (slot,)
        case Settle(targets=targets):
            return targets
        case _:
            return ()


def check(plan: Plan, vocabulary_size: int) -> None:
    """Raises InvalidRequest for a plan that can't be run: names that lead nowhere, parameters outside their limits."""
    if not plan.tracks or not all(plan.tracks):
        raise InvalidRequest("A plan has tracks, and each of them operations.", param="plan.tracks")
    if (total := sum(map(len, plan.tracks))) > MOST_OPERATIONS:
        raise InvalidRequest(f"The plan has {total} operations; at most {MOST_OPERATIONS} can be.", param="plan")
    started = [track for operations in plan.tracks for each in operations for track in _started(each)]
    if sorted(started) != list(range(1, len(plan.tracks))):
        raise InvalidRequest(
            "Each track but the first is started by exactly one Divide.", hint="Name each once.", param="plan.tracks"
        )
    for number, operations in enumerate(plan.tracks):
        for at, each in enumerate(operations):
            _check_operation(plan, operations, at, each, vocabulary_size, f"plan.tracks.{number}.{at}")


def _started(operation: Operation) -> tuple[int, ...]:
    return operation.tracks if isinstance(operation, Divide) else ()


def _check_operation(
    plan: Plan, operations: tuple[Operation, ...], at: int, operation: Operation, vocabulary_size: int, path: str
) -> None:
    arguments = operation.arguments if isinstance(operation, Call) else ()
    slots = [value.slot for value in (*reads(operation), *(each for each in arguments if isinstance(each, Value)))]
    marks = (operation.slot,) if isinstance(operation, Mark) else ()
    for slot in (*slots, *writes(operation), *marks):
        if not 0 <= slot < plan.slots:
            raise InvalidRequest(f"{path}: there is no slot {slot!r}; slots are 0 to {plan.slots - 1}.", param=path)
    if isinstance(operation, Join) and not all(0 < track < len(plan.tracks) for track in operation.tracks):
        raise InvalidRequest(f"{path}: Join names a track that isn't there.", param=path)
    if isinstance(operation, Jump) and not at < operation.target < len(operations):
        raise InvalidRequest(f"{path}: a Jump goes forward, to an operation of its track.", param=path)
    if isinstance(operation, Settle) and len(operation.targets) != len(operation.sources):
        raise InvalidRequest(f"{path}: Settle has a source for each target.", param=path)
    if isinstance(operation, Write):
        counts = {len(operation.params), len(operation.slots)}
        counts |= {len(each) for each in (operation.spaced, operation.thoughts) if each}
        if counts != {len(operation.params)} or not operation.params:
            raise InvalidRequest(f"{path}: Write has parameters and a slot for each output.", param=path)
        for params in (*operation.params, *operation.spaced):
            params.check(vocabulary_size)
