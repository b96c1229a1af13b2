"""Which items a matcher that remembers them can hold apart (runtime/grammar/distinct/matcher.py), without coming to a
dead end.

Three ways are safe: equal items are written equally, so that what may still come can be searched along the earlier
items' texts (their numbers are plain ones then, since 1.0 is 1); an item can always be gone on with; or it is a number,
whose few digits to come can be tried. Called by arrays.py and distinct.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from palmette.runtime.grammar.schema import ecma
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.shapes import (
    ArrayShape,
    Goal,
    KeyClass,
    NumberShape,
    ObjectShape,
    Shape,
    SimpleShape,
    StringShape,
    ValueShape,
)


def comparable(goals: list[Goal], least: int, solver: Solver) -> bool:
    """Whether a matcher that remembers items with these `goals` can hold them apart, and never comes to a dead end by
    it where `least` of them are needed."""
    passed: set[Goal] = set()
    if not all(_is_exact(shape, solver, passed) or is_free(shape) for goal in goals for shape in solver.shapes(goal)):
        return False
    return least <= 1 or all(map(is_many, map(solver.shapes, goals)))


def is_free(shape: Shape) -> bool:
    """Whatever was written of it can be gone on with to a value that isn't there yet."""
    match shape:
        case StringShape():
            return shape == StringShape(shape.least)
        case ObjectShape(_, _, classes, _, most):
            return most is None and any(_is_endless(each) for each in classes)
        case ArrayShape(_, rest, _, most, contained, unique):
            return most is None and not contained and not unique and not rest.never
    return False


def _is_endless(names: KeyClass) -> bool:
    """There is always another name."""
    if names.names.claims or len(names.patterns) > 1 or (names.patterns and names.others):
        return False
    return all(_goes_on(ecma.parse(pattern)) for pattern in names.patterns)


def _goes_on(pattern: ecma.Node) -> bool:
    """A text with the pattern in it can be made longer."""
    items = pattern.items if isinstance(pattern, ecma.Sequence) else (pattern,)
    if items[-1:] == (ecma.Anchor(start=False),):
        end = items[-2] if len(items) > 1 else None
        if not isinstance(end, ecma.Repeat) or end.most is not None or not isinstance(end.item, ecma.Chars):
            return False
        items = items[:-1]
    start = items[:1] == (ecma.Anchor(start=True),)
    return all(map(_is_plain, items[start:]))


def _is_plain(node: ecma.Node) -> bool:
    """It looks at nothing around."""
    match node:
        case ecma.Chars():
            return True
        case ecma.Repeat(item):
            return _is_plain(item)
        case ecma.Sequence(items) | ecma.Choice(items):
            return all(map(_is_plain, items))
    return False


def is_many(shapes: Iterable[Shape]) -> bool:
    return any(
        is_free(shape)
        or (isinstance(shape, StringShape) and shape == StringShape(shape.least, shape.most) and shape.most != 0)
        or (
            isinstance(shape, NumberShape)
            and (replace(shape, plain=False) == NumberShape(integral=True) or _is_dense(shape))
        )
        for shape in shapes
    )


def _is_exact(shape: Shape, solver: Solver, passed: set[Goal], *, inside: bool = False) -> bool:
    """Equal values are written equally; but for numbers that are items themselves. `passed`: goals that are looked at
    already. `inside`: it is a part of an item; one that can be gone on with is compared by its value when it ends."""

    def all_exact(goal: Goal) -> bool:
        if goal.never or goal in passed:
            return True
        passed.add(goal)
        return all(_is_exact(each, solver, passed, inside=True) for each in solver.shapes(goal))

    match shape:
        case StringShape() | SimpleShape():
            return True
        case ValueShape(_, value):
            return not isinstance(value, list | dict)
        case NumberShape(integral=True):
            return True
        case NumberShape():
            return (shape.plain and not shape.multiples) or (not inside and _is_dense(shape))
        case ArrayShape(prefix, rest):
            return (inside and is_free(shape)) or all(map(all_exact, (*prefix, rest)))
        case ObjectShape(named, _, classes):
            return (inside and is_free(shape)) or (not classes and all(all_exact(each.goal) for each in named))


def _is_dense(shape: NumberShape) -> bool:
    """Between any two there are others."""
    low, high = shape.interval.low, shape.interval.high
    return shape.integral is not True and not shape.multiples and (low is None or low != high)
