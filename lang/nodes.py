"""What a program is made of: expressions that `s += …` appends, built by the primitives and joined with `+`.

Data only. Nodes know nothing of states, backends or how they are executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from palmette.lang.choices import ChoicesMethod
from palmette.lang.sampling import SamplingOptions
from palmette.lang.types import OutputType
from palmette.runtime.errors import InvalidRequest


class Expr:
    """Something that can be appended to a state. `+` with a string or another expression makes a sequence."""

    __slots__ = ()

    def __add__(self, other: object) -> ExprList:
        return ExprList((*parts_of(self), *parts_of(other)))

    def __radd__(self, other: object) -> ExprList:
        return ExprList((*parts_of(other), *parts_of(self)))

    def __format__(self, spec: str) -> str:
        """In a formatted string an expression would silently become its name."""
        raise InvalidRequest(
            f"{self!s:.80} can't be put into a formatted string.",
            hint='Join it with +: "…" + gen(...) instead of f"…{gen(...)}".',
        )


@dataclass(frozen=True, slots=True)
class TextNode(Expr):
    """Constant text."""

    text: str

    def __str__(self) -> str:
        return f"text {self.text[:40]!r}"


@dataclass(frozen=True, slots=True)
class GenNode(Expr):
    """Text that the model writes, up to a stop; kept as variable `name` where it has one.

    `count` outputs from one prompt, the first of which goes on. `type`: what the text becomes. `reasoning`: a format's
    name or "auto", by which reasoning and answer are told apart.
    """

    name: str | None
    sampling: SamplingOptions = field(default_factory=dict)
    count: int = 1
    type: OutputType | None = None
    reasoning: str | None = None

    def __str__(self) -> str:
        return f"gen({self.name!r})" if self.name else "gen()"


@dataclass(frozen=True, slots=True)
class SelectNode(Expr):
    """The best of `choices` by `method`, appended and kept as variable `name`."""

    name: str | None
    choices: tuple[str, ...]
    method: ChoicesMethod
    sampling: SamplingOptions = field(default_factory=dict)  # its priority and timeout

    def __str__(self) -> str:
        return f"select({self.name!r})" if self.name else "select()"


@dataclass(frozen=True, slots=True)
class AnyOrder(Expr):
    """Texts that may stand in any order, one behind the other."""

    texts: tuple[str, ...]

    def __str__(self) -> str:
        return f"any_order({len(self.texts)} texts)"


@dataclass(frozen=True, slots=True)
class RoleBegin(Expr):
    role: str

    def __str__(self) -> str:
        return f"{self.role}_begin()"


@dataclass(frozen=True, slots=True)
class RoleEnd(Expr):
    role: str

    def __str__(self) -> str:
        return f"{self.role}_end()"


@dataclass(frozen=True, slots=True)
class ExprList(Expr):
    """Expressions in a row, already flat."""

    items: tuple[Expr, ...] = ()

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.items)

    def __str__(self) -> str:
        return " + ".join(map(str, self.items))


def parts_of(value: object) -> tuple[Expr, ...]:
    """The flat sequence that `value` stands for. Raises InvalidRequest for what can't be appended."""
    if isinstance(value, str):
        return (TextNode(value),) if value else ()
    if isinstance(value, ExprList):
        return value.items
    if isinstance(value, Expr):
        return (value,)
    hint = "Append a string, or an expression such as gen(...); turn values into text with str()."
    if isinstance(value, list):
        hint = 'What forks and gens with n wrote is a list: append one of it, as in s += forks[0]["x"] or s["x"][0].'
    raise InvalidRequest(
        f"{value!r} (of type {type(value).__name__}) can't be appended to a program's state.", hint=hint
    )
