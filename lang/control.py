"""What a program's flow hangs on, said in the language: when, match and repeat. They run as they are, and compile.

A condition is a bool, or a function of the state that gives one (`lambda s: s["x"] == "yes"`). A body is text, an
expression, or a function of the state. States call `run`; tracing (compiling/tracing.py) takes the same nodes into a
graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palmette.lang.nodes import Expr, parts_of
from palmette.runtime.errors import InvalidRequest

Body = Any
"""Text, an expression, a function of the state, or None for nothing."""

MOST_PASSES = 256


class Control(Expr):
    """Something that decides what is appended next."""

    __slots__ = ()

    def run(self, state: Any) -> None:
        """Decide, waiting for what that takes, and append."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class When(Control):
    condition: Any
    then: Body
    otherwise: Body = None

    def run(self, state: Any) -> None:
        taken = bool(decided(state, self.condition))
        with state._written_in(0 if taken else 1):
            write(state, self.then if taken else self.otherwise)

    def __str__(self) -> str:
        return "when(…)"


@dataclass(frozen=True, slots=True)
class Match(Control):
    name: str
    cases: Mapping[Any, Body]
    otherwise: Body = None

    def run(self, state: Any) -> None:
        value = state[self.name]
        ways = [(number, body) for number, (case, body) in enumerate(self.cases.items()) if value == case]
        number, body = ways[0] if ways else (len(self.cases), self.otherwise)
        with state._written_in(number):
            write(state, body)

    def __str__(self) -> str:
        return f"match({self.name!r}, …)"


@dataclass(frozen=True, slots=True)
class Repeat(Control):
    body: Body
    until: Callable[[Any], Any] | None
    at_most: int

    def run(self, state: Any) -> None:
        for number in range(self.at_most):
            with state._written_in(number):
                write(state, self.body)
            if self.until is not None and number + 1 < self.at_most and bool(self.until(state)):
                return

    def __str__(self) -> str:
        return f"repeat(…, at_most={self.at_most})"


def when(condition: Any, then: Body, otherwise: Body = None) -> Expr:
    """`then` where the condition holds, else `otherwise`.

        s += when(s["sure"] == "yes", gen("answer"), lambda s: think_again(s))

    Raises InvalidRequest for a body that can't be appended.
    """
    _check_body(then, "then")
    _check_body(otherwise, "otherwise")
    return When(condition, then, otherwise)


def match(name: str, cases: Mapping[Any, Body], otherwise: Body = None) -> Expr:
    """The body of the case that variable `name` equals; the first of several; else `otherwise`."""
    if not isinstance(name, str) or not name:
        raise InvalidRequest(
            f"match({name!r}, …) takes the name of a variable.", hint='Write match("x", {…}).', param="name"
        )
    if not isinstance(cases, Mapping) or not cases:
        raise InvalidRequest(f"match({name!r}, …): cases={cases!r} has no case.", param="cases")
    for case, body in cases.items():
        _check_body(body, f"case {case!r}")
    _check_body(otherwise, "otherwise")
    return Match(name, dict(cases), otherwise)


def repeat(body: Body, *, until: Callable[[Any], Any] | None = None, at_most: int) -> Expr:
    """`body` again and again, until the condition holds behind a pass, or `at_most` passes are done."""
    _check_body(body, "body")
    if body is None:
        raise InvalidRequest("repeat(None) repeats nothing.", param="body")
    if not isinstance(at_most, int) or isinstance(at_most, bool) or not 1 <= at_most <= MOST_PASSES:
        raise InvalidRequest(
            f"at_most={at_most!r} is not a whole number from 1 to {MOST_PASSES}.",
            hint="Every repetition has a bound.",
            param="at_most",
        )
    if until is not None and not callable(until):
        raise InvalidRequest(
            f"until={until!r} is known before the first pass.",
            hint='Give a function of the state: until=lambda s: s["x"] == "done".',
            param="until",
        )
    return Repeat(body, until, at_most)


def decided(state: Any, condition: Any) -> Any:
    """The condition's truth: of a function, what it says of the state now."""
    return condition(state) if callable(condition) else condition


def write(state: Any, body: Body) -> None:
    """Append a body."""
    if callable(body) and not isinstance(body, Expr):
        body(state)
    elif body is not None:
        state += body


def _check_body(body: Body, which: str) -> None:
    if body is None or (callable(body) and not isinstance(body, Expr)):
        return
    try:
        parts_of(body)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"{which}: {error.message}", hint="A body is text, an expression, or a function of the state.", param=which
        ) from None
