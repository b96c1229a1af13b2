"""What an interpreter executes: nodes whose parameters are settled and whose variables are declared. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from palmette.lang.arrival import Arrival
from palmette.lang.interpreter.outputs import OutputRecord
from palmette.lang.interpreter.variables import Variable
from palmette.lang.nodes import GenNode, RoleBegin, RoleEnd, SelectNode, TextNode
from palmette.lang.sampling import derive_seed
from palmette.lang.streams import TextStream
from palmette.runtime.messages.branches import GenerateStep, Part, ScoreStep
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tool_chats import AskTurn

if TYPE_CHECKING:
    from palmette.lang.interpreter.executor import Executor


class Generation(msgspec.Struct, frozen=True):
    """A gen with its parameters settled and its variables declared. `thoughts`: the variable of its reasoning."""

    node: GenNode
    params: SamplingParams
    variable: Variable | None
    thoughts: Variable | None = None
    priority: int | None = None
    timeout: float | None = None  # seconds
    reply_seconds: float = 0.0

    def step(self, parts: tuple[Part, ...] = (), *, index: int = 0) -> GenerateStep:
        """What the backend is asked for; `index`: which of several outputs."""
        params = self.params
        if index and params.seed is not None:
            params = msgspec.structs.replace(params, seed=derive_seed(params.seed, index))
        return GenerateStep(
            parts=parts,
            params=params,
            reasoning=self.node.reasoning,
            priority=self.priority,
            deadline=self.timeout,
            reply_seconds=self.reply_seconds,
        )

    def record(self, index: int = 0) -> OutputRecord:
        """Where an output is gathered, and goes into its streams."""
        return OutputRecord(self.node, _stream(self.variable, index), _stream(self.thoughts, index))

    def fill(self, records: Sequence[OutputRecord]) -> None:
        """The variables from the whole outputs: a value, or a list of them where several were asked for."""
        values = [record.value() for record in records]
        several = self.node.count > 1
        if self.thoughts is not None:
            thoughts = [record.reasoning for record in records]
            self.thoughts.fill(thoughts if several else thoughts[0])
        if self.variable is not None:
            meta = records[0].meta
            if several:
                meta = {**meta, "outputs": [record.meta for record in records]}
            self.variable.fill(values if several else values[0], meta)

    def __str__(self) -> str:
        return str(self.node)


def _stream(variable: Variable | None, index: int) -> TextStream | None:
    return variable.output_stream(index) if variable is not None else None


class Selection(msgspec.Struct, frozen=True):
    """A select with its options settled and its variable declared."""

    node: SelectNode
    variable: Variable | None
    priority: int | None = None
    timeout: float | None = None  # seconds

    def step(self, parts: tuple[Part, ...] = ()) -> ScoreStep:
        """What the backend is asked for."""
        method = self.node.method
        return ScoreStep(
            parts=parts,
            choices=self.node.choices,
            method=method.wire_name,
            unconditional=method.unconditional,
            priority=self.priority,
            deadline=self.timeout,
        )

    def __str__(self) -> str:
        return str(self.node)


@dataclass(frozen=True, slots=True)
class Fork:
    children: tuple[Executor, ...]

    def __str__(self) -> str:
        return f"fork({len(self.children)})"


@dataclass(frozen=True, slots=True)
class Concatenate:
    """Append what each child appended since its fork."""

    children: tuple[Executor, ...]

    def __str__(self) -> str:
        return "join('concate_and_append')"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Resolved when every node before it is done. With `text`, template text is fetched first."""

    reached: Arrival[None]
    text: bool

    def __str__(self) -> str:
        return "text()" if self.text else "sync()"


@dataclass(frozen=True, slots=True)
class Hinting:
    """Tell the cache what is known of this state's future."""

    hint: BranchHint

    def __str__(self) -> str:
        return "hint()"


@dataclass(frozen=True, slots=True)
class Asking:
    """Ask for the next turn of a conversation with tools, which stands beside what the state holds. `new`: how many of
    its messages weren't there when the turn before was asked."""

    variable: Variable
    turn: AskTurn
    new: int

    def __str__(self) -> str:
        return f"turn {self.variable.name!r}"


@dataclass(frozen=True, slots=True)
class ScopeBegin:
    variable: Variable

    def __str__(self) -> str:
        return f"var_scope({self.variable.name!r})"


@dataclass(frozen=True, slots=True)
class ScopeEnd:
    variable: Variable

    def __str__(self) -> str:
        return f"var_scope({self.variable.name!r})"


@dataclass(frozen=True, slots=True)
class End:
    def __str__(self) -> str:
        return "the end of the program"


Node = (
    TextNode
    | RoleBegin
    | RoleEnd
    | Generation
    | Selection
    | Fork
    | Concatenate
    | Barrier
    | Hinting
    | Asking
    | ScopeBegin
    | ScopeEnd
    | End
)
PASSIVE = (TextNode, RoleBegin, RoleEnd)  # they travel with the next verb
