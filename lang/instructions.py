"""What an interpreter executes: nodes whose parameters are settled and whose variables are declared. Data only."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palmette.lang.nodes import GenNode, RoleBegin, RoleEnd, SelectNode, TextNode
from palmette.lang.variables import Variable
from palmette.runtime.messages.sampling import SamplingParams

if TYPE_CHECKING:
    from palmette.lang.interpreter import Interpreter


@dataclass(frozen=True, slots=True)
class Generation:
    """A gen with its parameters settled and its variable declared."""

    node: GenNode
    params: SamplingParams
    variable: Variable | None

    def __str__(self) -> str:
        return str(self.node)


@dataclass(frozen=True, slots=True)
class Selection:
    node: SelectNode
    variable: Variable | None

    def __str__(self) -> str:
        return str(self.node)


@dataclass(frozen=True, slots=True)
class Fork:
    children: tuple[Interpreter, ...]

    def __str__(self) -> str:
        return f"fork({len(self.children)})"


@dataclass(frozen=True, slots=True)
class Concatenate:
    """Append what each child appended since its fork."""

    children: tuple[Interpreter, ...]

    def __str__(self) -> str:
        return "join('concate_and_append')"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Resolved when every node before it is done. With `text`, template text is fetched first."""

    reached: Future[None]
    text: bool

    def __str__(self) -> str:
        return "text()" if self.text else "sync()"


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
    TextNode | RoleBegin | RoleEnd | Generation | Selection | Fork | Concatenate | Barrier | ScopeBegin | ScopeEnd | End
)
PASSIVE = (TextNode, RoleBegin, RoleEnd)  # they travel with the next verb
