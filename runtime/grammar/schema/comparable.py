"""Which items a matcher that remembers them can hold apart (runtime/grammar/distinct/matcher.py), without coming to a
dead end.

Three ways are safe: equal items are written equally, so that what may still come can be searched along the earlier
items' texts; an item can always be gone on with; or it is a number, whose few digits to come can be tried. A number
within an item that can't be gone on with is none of them (1.0 and 1). Called by arrays.py and distinct.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.shapes import (
    ArrayShape,
    Goal,
    NumberShape,
    ObjectShape,
    Shape,
    SimpleShape,
    StringShape,
    ValueShape,
)

MAX_DEPTH = 12  # levels of an item


def comparable(prefix: tuple[Goal, ...], rest: Goal, least: int, solver: Solver) -> bool:
    """Whether a matcher that remembers the items can hold them apart, and never comes to a dead end by it."""
    goals = [*prefix, rest]
    if not all(_is_exact(shape, solver, 0) or is_free(shape) for goal in goals for shape in solver.shapes(goal)):
        return False
    return least <= 1 or all(map(is_many, map(solver.shapes, goals)))


def is_free(shape: Shape) -> bool:
    """Whatever was written of it can be gone on with to a value that isn't there yet."""
    match shape:
        case StringShape():
            return shape == StringShape(shape.least)
        case ObjectShape(_, _, classes, _, most):
            return most is None and any(not each.patterns and not each.names.claims for each in classes)
        case ArrayShape(_, rest, _, most, contained, unique):
            return most is None and not contained and not unique and not rest.never
    return False


def is_many(shapes: Iterable[Shape]) -> bool:
    return any(
        is_free(shape)
        or (isinstance(shape, StringShape) and shape == StringShape(shape.least, shape.most) and shape.most != 0)
        or (isinstance(shape, NumberShape) and (shape == NumberShape(integral=True) or _is_dense(shape)))
        for shape in shapes
    )


def _is_exact(shape: Shape, solver: Solver, depth: int) -> bool:
    """Equal values are written equally; but for numbers that are items themselves."""
    if depth > MAX_DEPTH:
        return False
    match shape:
        case StringShape() | SimpleShape():
            return True
        case ValueShape(_, value):
            return not isinstance(value, list | dict)
        case NumberShape(interval, integral):
            return (integral is True and not (depth and interval.free)) or (not depth and _is_dense(shape))
        case ArrayShape(prefix, rest, _, _, contained):
            return not contained and all(_all_exact(goal, solver, depth) for goal in (*prefix, rest))
        case ObjectShape(named, _, classes):
            return not classes and all(_all_exact(each.goal, solver, depth) for each in named)


def _is_dense(shape: NumberShape) -> bool:
    """Between any two there are others."""
    low, high = shape.interval.low, shape.interval.high
    return shape.integral is not True and not shape.multiples and (low is None or low != high)


def _all_exact(goal: Goal, solver: Solver, depth: int) -> bool:
    return goal.never or all(_is_exact(shape, solver, depth + 1) for shape in solver.shapes(goal))
