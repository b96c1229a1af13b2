"""What a goal comes to: a union of shapes, each of one JSON type, whose children are goals again.

A goal is a set of claims (a schema holds, or doesn't) that one value must meet together. goals.py turns goals into
shapes, rules.py turns shapes into rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from palmette.runtime.grammar.schema.document import PLAIN_PATH, Place
from palmette.runtime.grammar.schema.numerals import FREE, Interval


@dataclass(frozen=True)
class Claim:
    """The schema at `place` holds, or else fails to."""

    place: Place
    holds: bool = True

    def denied(self) -> Claim:
        return Claim(self.place, not self.holds)


@dataclass(frozen=True)
class Goal:
    """Claims that hold together; none: any value. Equal for equal sets of claims."""

    key: frozenset[Claim]
    claims: tuple[Claim, ...] = field(compare=False, default=())

    @staticmethod
    def of(claims: Iterable[Claim]) -> Goal:
        kept = tuple(dict.fromkeys(claim for claim in claims if claim.place.schema is not claim.holds))
        return Goal(frozenset(kept), kept)

    @cached_property
    def never(self) -> bool:
        """Obviously unmeetable."""
        return any(
            claim.place.schema is (not claim.holds) or (not claim.holds and claim.place.schema == {})
            for claim in self.claims
        )


PLAIN = Claim(Place(PLAIN_PATH, {"description": "every number in it is written in one way"}))
"""Of values that are compared by their texts."""

NEVER = Goal.of([Claim(Place("/~never", False))])


@dataclass(frozen=True)
class ValueShape:
    """Exactly this value. `text` is its canonical form."""

    text: str
    value: Any = field(compare=False)


@dataclass(frozen=True)
class SimpleShape:
    """null, true or false."""

    text: str


@dataclass(frozen=True)
class NumberShape:
    """`integral`: True for integers only, False for numbers that aren't, None for both. `plain`: each written in one
    way."""

    interval: Interval = FREE
    integral: bool | None = None
    multiples: tuple[str, ...] = ()
    plain: bool = False


@dataclass(frozen=True)
class StringShape:
    least: int = 0
    most: int | None = None
    patterns: tuple[str, ...] = ()
    denied_patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    denied_formats: tuple[str, ...] = ()
    denied_texts: tuple[str, ...] = ()

    @property
    def impossible(self) -> bool:
        return self.most is not None and self.most < self.least


@dataclass(frozen=True)
class Contained:
    """From `least` to `most` items meet `goal`."""

    goal: Goal
    least: int
    most: int | None


@dataclass(frozen=True)
class ArrayShape:
    """Items at the front have goals of their own; the others meet `rest`."""

    prefix: tuple[Goal, ...]
    rest: Goal
    least: int
    most: int | None
    contained: tuple[Contained, ...]
    unique: bool


@dataclass(frozen=True)
class NamedProperty:
    name: str
    required: bool
    goal: Goal


@dataclass(frozen=True)
class KeyClass:
    """Properties without a name of their own, whose names match all of `patterns`, none of `others`, and `names`."""

    patterns: tuple[str, ...]
    others: tuple[str, ...]
    names: Goal
    goal: Goal


@dataclass(frozen=True)
class ObjectShape:
    """Named properties in order, then any number of others. `known`: names that only a named property may have."""

    named: tuple[NamedProperty, ...]
    known: tuple[str, ...]
    classes: tuple[KeyClass, ...]
    least: int
    most: int | None

    def having(self, name: str, claim: Claim) -> ObjectShape:
        """The same, with the property `name`, for whose value `claim` holds."""
        named = tuple(
            NamedProperty(name, True, Goal.of([*each.goal.claims, claim])) if each.name == name else each
            for each in self.named
        )
        return replace(self, named=named)


Shape = ValueShape | SimpleShape | NumberShape | StringShape | ArrayShape | ObjectShape
