"""Numbers as they are written here, and the numerals of a range as a regex.

An integer is written without fraction or exponent, and a range's numbers without exponent: one form a value, up to
zeros at the end of a fraction; a plain number has those neither. Decimals are exact: nothing is rounded to a float.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

INTEGER = "0|-?[1-9][0-9]*"
PLAIN_NUMBER = r"(?:0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9])"
POSITIVE_INTEGER = "[1-9][0-9]*"
FREE_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,2}|[eE]-[0-9]{1,3})?"


def decimal(value: Any) -> Decimal:
    """A JSON number (int or float) as the decimal that it was written as."""
    return Decimal(value) if isinstance(value, int | Decimal) else Decimal(repr(value))


def numeral(value: Decimal) -> str:
    """The one way to write `value`."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


@dataclass(frozen=True)
class Interval:
    """low … high; an end is open where `*_open`. None: no end."""

    low: Decimal | None = None
    high: Decimal | None = None
    low_open: bool = False
    high_open: bool = False

    def above(self, bound: Decimal, is_open: bool) -> Interval:
        """The part that is at least (or above) `bound`."""
        if self.low is None or bound > self.low:
            return Interval(bound, self.high, is_open, self.high_open)
        return Interval(self.low, self.high, self.low_open or (is_open and bound == self.low), self.high_open)

    def below(self, bound: Decimal, is_open: bool) -> Interval:
        if self.high is None or bound < self.high:
            return Interval(self.low, bound, self.low_open, is_open)
        return Interval(self.low, self.high, self.low_open, self.high_open or (is_open and bound == self.high))

    @property
    def empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    @property
    def free(self) -> bool:
        return self.low is None and self.high is None

    def integers(self) -> tuple[int | None, int | None]:
        """The first and the last integer inside."""
        low = high = None
        if self.low is not None:
            low = int(self.low.to_integral_value("ROUND_CEILING"))
            low += self.low_open and low == self.low
        if self.high is not None:
            high = int(self.high.to_integral_value("ROUND_FLOOR"))
            high -= self.high_open and high == self.high
        return low, high


FREE = Interval()


def integer_regex(low: int | None, high: int | None) -> str:
    """Integers from low to high, both inclusive; low <= high."""
    parts = []
    if low is None or low < 0:
        negative_high = 1 if high is None or high >= 0 else -high
        parts.append("-" + _naturals(negative_high, None if low is None else -low))
    if (low is None or low <= 0) and (high is None or high >= 0):
        parts.append("0")
    if high is None or high > 0:
        parts.append(_naturals(1 if low is None or low < 1 else low, high))
    return f"(?:{'|'.join(parts)})"


def _naturals(low: int, high: int | None) -> str:
    """Naturals from low >= 1 on."""
    if high is None:
        digits = len(str(low))
        return f"(?:{_naturals(low, 10**digits - 1)}|[1-9][0-9]{{{digits},}})"
    parts = []
    start = low
    while start <= high:
        end = min(high, 10 ** len(str(start)) - 1)
        parts.append(_same_length(str(start), str(end)))
        start = end + 1
    return f"(?:{'|'.join(parts)})" if parts else "[^\\x{0}-\\x{10FFFF}]"


def _same_length(low: str, high: str) -> str:
    if low == high:
        return low
    if set(low) <= {"0"} and set(high) <= {"9"}:
        return f"[0-9]{{{len(low)}}}"
    if len(low) == 1:
        return f"[{low}-{high}]"
    first, last = int(low[0]), int(high[0])
    rest = len(low) - 1
    if first == last:
        return low[0] + _same_length(low[1:], high[1:])
    parts = []
    if set(low[1:]) != {"0"}:
        parts.append(low[0] + _same_length(low[1:], "9" * rest))
        first += 1
    cut_last = set(high[1:]) != {"9"}
    if first <= last - cut_last:
        parts.append(f"[{first}-{last - cut_last}][0-9]{{{rest}}}")
    if cut_last:
        parts.append(high[0] + _same_length("0" * rest, high[1:]))
    return f"(?:{'|'.join(parts)})"


def number_terminal(interval: Interval) -> str:
    """A terminal of the decimals inside; the interval isn't empty."""
    if interval.free:
        return f"/{FREE_NUMBER}/"
    parts = []
    zero = Decimal(0)
    upper = interval.below(zero, is_open=True)
    if not upper.empty:
        mirrored = Interval(
            None if upper.high is None else upper.high.copy_negate(),
            None if upper.low is None else upper.low.copy_negate(),
            upper.high_open,
            upper.low_open,
        )
        parts.append(f'("-" {_positive(mirrored)})')
    if not interval.above(zero, False).below(zero, False).empty:
        parts.append(r"/0(?:\.0+)?/")
    lower = interval.above(zero, is_open=True)
    if not lower.empty:
        parts.append(_positive(lower))
    return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"


def _positive(interval: Interval) -> str:
    """Decimals of an interval above 0 (its low is at least 0; open if 0)."""
    assert interval.low is not None
    terms = [_at_least(interval.low, interval.low_open)]
    if interval.high is not None:
        terms.append(_at_most(interval.high, interval.high_open))
    return f"({' & '.join(f'/{term}/' for term in terms)})"


def _parts(bound: Decimal) -> tuple[int, str]:
    whole, _, fraction = numeral(bound).partition(".")
    return int(whole), fraction


def _at_least(bound: Decimal, is_open: bool) -> str:
    whole, fraction = _parts(bound)
    more = f"{_naturals(whole + 1, None)}(?:\\.[0-9]+)?"
    return f"(?:{more}|{whole}{_fraction_from(fraction, is_open)})"


def _fraction_from(digits: str, is_open: bool) -> str:
    """'.…' that is at least (above) 0.digits; nothing, where that is 0 and inclusive."""
    if not digits:
        return r"\.[0-9]*[1-9][0-9]*" if is_open else r"(?:\.[0-9]+)?"
    regex = "[0-9]*[1-9][0-9]*" if is_open else "[0-9]*"
    for digit in reversed(digits):
        higher = f"[{int(digit) + 1}-9][0-9]*|" if digit != "9" else ""
        regex = f"(?:{higher}{digit}{regex})"
    return r"\." + regex


def _at_most(bound: Decimal, is_open: bool) -> str:
    whole, fraction = _parts(bound)
    parts = []
    if whole > 0:
        parts.append(f"{integer_regex(0, whole - 1)}(?:\\.[0-9]+)?")
    if not fraction:
        if not is_open:
            parts.append(rf"{whole}(?:\.0+)?")
    else:
        parts.append(f"{whole}(?:\\.{_digits_to(fraction, is_open)})?")
    return f"(?:{'|'.join(parts)})" if parts else "[^\\x{0}-\\x{10FFFF}]"


def _digits_to(digits: str, is_open: bool) -> str:
    """Digits (at least one) of a fraction that is at most (below) 0.digits."""
    regex = ""
    last = len(digits) - 1
    for index in range(last, -1, -1):
        digit = digits[index]
        lower = f"[0-{int(digit) - 1}][0-9]*|" if digit != "0" else ""
        if index == last:
            # digits ends in a digit > 0, so what stops before it is below the bound
            same = "" if is_open else f"|{digit}0*"
            regex = f"(?:{lower.rstrip('|')}{same})"
        else:
            regex = f"(?:{lower}{digit}{regex}?)"
    return regex
