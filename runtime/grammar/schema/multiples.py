"""Multiples: the one kind of number that llguidance's own JSON numbers do, within what it does exactly and quickly."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import reduce
from math import ceil, lcm
from typing import Any

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import numerals
from palmette.runtime.grammar.schema.shapes import NumberShape

EXACT = 2**53
MAX_STEP = 100_000  # of multipleOf, in units of its last digit: the automaton has a state for each remainder


def none_inside(shape: NumberShape) -> bool:
    """Whether the interval is bounded and holds no multiple."""
    step = _step(shape)
    low, high = shape.interval.low, shape.interval.high
    if low is None or high is None:
        return False
    first = ceil(Fraction(low) / step)
    first += shape.interval.low_open and first * step == Fraction(low)
    least = first * step
    return least > Fraction(high) or (shape.interval.high_open and least == Fraction(high))


def rule(shape: NumberShape) -> str:
    """A rule: llguidance knows multiples of decimals."""
    step = _step(shape)
    digits = step.denominator
    while any(digits % prime == 0 for prime in (2, 5)):
        digits //= 2 if digits % 2 == 0 else 5
    scaled = step * 10 ** len(numerals.numeral(_decimal(step)).partition(".")[2]) if digits == 1 else step
    if digits != 1 or scaled.numerator > MAX_STEP:
        raise GrammarError(
            f"'multipleOf' {float(step)!r} can't be enforced: its automaton would be too large.",
            hint="Use a step of fewer digits, or ask for best effort.",
            param="json_schema",
        )
    schema: dict[str, Any] = {"type": "number", "multipleOf": _exact(step)}
    interval = shape.interval
    if step.denominator == 1:
        schema["type"] = "integer"
        low, high = interval.integers()
        bounds: dict[str, Any] = {"minimum": low, "maximum": high}
    else:
        bounds = {
            "exclusiveMinimum" if interval.low_open else "minimum": interval.low,
            "exclusiveMaximum" if interval.high_open else "maximum": interval.high,
        }
    for keyword, bound in bounds.items():
        if bound is not None:
            schema[keyword] = _exact(Fraction(bound))
    if shape.integral is False:
        raise GrammarError(
            "'multipleOf' of numbers that are not integers can't be enforced.",
            hint="Leave it out, or ask for best effort.",
            param="json_schema",
        )
    return f"%json {msgspec.json.encode(schema).decode()}"


def _step(shape: NumberShape) -> Fraction:
    """What all multiples are multiples of together."""
    steps = [Fraction(text) for text in shape.multiples]
    if shape.integral:
        steps.append(Fraction(1))
    return reduce(_common, steps)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _exact(value: Fraction) -> int | float:
    if value.denominator == 1 and abs(value) < EXACT:
        return int(value)
    number = float(value)
    if abs(value) < EXACT and Fraction(repr(number)) == value and "e" not in repr(number):
        return number
    raise GrammarError(
        f"'multipleOf' with the number {float(value)!r} can't be enforced exactly.",
        hint="Use steps and bounds of fewer digits.",
        param="json_schema",
    )


def _common(one: Fraction, other: Fraction) -> Fraction:
    """The least common multiple."""
    denominator = one.denominator * other.denominator
    return Fraction(lcm(one.numerator * other.denominator, other.numerator * one.denominator), denominator)
