"""A regular expression as a tree. Made by the parser and by choices, read by the automaton.

Groups and laziness are gone (they don't change which texts match as a whole); flags have been applied to the sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from palmette.runtime.grammar.regex.charset import CharSet, single


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; the empty sequence matches the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of the options; no options match nothing."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times; None: without end."""

    item: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Look:
    """What follows begins (`whole`: is) a match of `item`, or doesn't (`negative`). Consumes nothing.

    `position`: where it stands in the pattern.
    """

    item: Node
    negative: bool
    whole: bool
    position: int


@dataclass(frozen=True, slots=True)
class Start:
    """The start of the text (`^`). Resolved by the parser; no automaton sees one."""

    position: int


Node: TypeAlias = Chars | Sequence | Choice | Repeat | Look | Start

EMPTY = Sequence(())
NEVER = Choice(())


def literal(text: str) -> Sequence:
    return Sequence(tuple(Chars(single(character)) for character in text))


def shortest(node: Node) -> int:
    """The least number of characters that `node` consumes (a bound from below where nothing matches)."""
    match node:
        case Chars():
            return 1
        case Sequence(items):
            return sum(map(shortest, items))
        case Choice(options):
            return min(map(shortest, options), default=0)
        case Repeat(item, low, _):
            return low * shortest(item)
        case Look() | Start():
            return 0


def consumes_nothing(node: Node) -> bool:
    """`node` never consumes a character."""
    match node:
        case Chars():
            return False
        case Sequence(items):
            return all(map(consumes_nothing, items))
        case Choice(options):
            return all(map(consumes_nothing, options))
        case Repeat(item, _, high):
            return high == 0 or consumes_nothing(item)
        case Look() | Start():
            return True
