"""A program's errors: which line of the program, which node, and why.

Knows nothing of states or backends; the interpreter raises these, `caller` tells it the program's line.
"""

from __future__ import annotations

import copy
import difflib
import functools
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, ParamSpec, TypeVar

from palmette.runtime.errors import PalmetteError

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Location(NamedTuple):
    """A line of a program."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        shown = os.path.relpath(self.filename) if self.filename.startswith(os.getcwd() + os.sep) else self.filename
        return f"{shown}:{self.line} in {self.function}"


def is_ours(filename: str) -> bool:
    """Whether a file is of this package, and so no program's."""
    return filename.startswith(_PACKAGE)


def caller() -> Location:
    """The innermost line outside this package: the program's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def raised_at(traceback: TracebackType | None) -> Location | None:
    """The innermost line outside this package that an exception came through."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            found = Location(code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next
    return found


def recurs_at(traceback: TracebackType | None) -> Location | None:
    """The line outside this package that an exception came through most often."""
    times: Counter[Location] = Counter()
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            times[Location(code.co_filename, traceback.tb_lineno, code.co_name)] += 1
        traceback = traceback.tb_next
    return times.most_common(1)[0][0] if times else None


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    return next(iter(difflib.get_close_matches(str(name), list(known), n=1)), None)


def names_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which says what may have been meant by a keyword that it doesn't have. Raises TypeError."""
    known = frozenset(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs.keys() <= known:
            unknown = next(name for name in kwargs if name not in known)
            near = nearest(unknown, sorted(known))
            advice = f" Did you mean {near!r}?" if near else f" It has {', '.join(sorted(known))}."
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {unknown!r}.{advice}")
        return function(*args, **kwargs)

    return checked


def located(error: PalmetteError, where: Location, node: str = "") -> PalmetteError:
    """The error with the program's line, and what it was at, in its message; itself where a line is told already."""
    if getattr(error, "where", None) is not None:
        return error
    told = copy.copy(error)
    vars(told).update(message=": ".join(filter(None, (str(where), node, error.message))), where=where)
    told.__cause__ = error
    return told


class ProgramError(PalmetteError):
    """A node of a program failed, or the program itself raised. `cause` is what went wrong.

    `where` is the program's line that wrote the node, `node` describes it (`gen('answer')`); both are in the message.
    The same failure is raised at every line that reads what it took away, each time as a fresh exception.
    """

    def __init__(self, cause: BaseException, where: Location, node: str) -> None:
        ours = isinstance(cause, PalmetteError)
        reason = cause.message if isinstance(cause, PalmetteError) else f"{type(cause).__name__}: {cause}"
        super().__init__(
            f"{where}: {node}: {reason}",
            hint=cause.hint if isinstance(cause, PalmetteError) else "",
            param=cause.param if isinstance(cause, PalmetteError) else None,
        )
        self.cause = cause
        self.where = where
        self.node = node
        self.retryable = ours and bool(getattr(cause, "retryable", False))
        self.http_status = cause.http_status if isinstance(cause, PalmetteError) else 500
        self.__cause__ = cause

    def again(self) -> ProgramError:
        """The same failure as a new exception, so that tracebacks of several readers don't mix."""
        return ProgramError(self.cause, self.where, self.node)


class UnknownVariable(KeyError):
    """A variable that the program has not written. `where`: the line that reads it."""

    def __init__(self, name: object, known: Iterable[str], advice: str = "") -> None:
        self.where = caller()
        written = list(known)
        near = nearest(name, written)
        first = f"Write it first, as in s += gen({name!r})." if not written else ""
        hint = advice or (f"Did you mean {near!r}?" if near else first)
        names = ", ".join(map(repr, written)) or "none yet"
        super().__init__(
            f"{self.where}: the program has no variable {name!r}. Its variables: {names}.{hint and ' ' + hint}"
        )

    def __str__(self) -> str:
        return str(self.args[0])


class TraceError(PalmetteError):
    """A program that hangs on generated text in a way that no graph can show. `where`: the line; it still runs as it
    is."""

    def __init__(self, problem: str, *, hint: str = "", where: Location | None = None) -> None:
        self.where = where or caller()
        super().__init__(f"{self.where}: {problem}", hint=hint or "Run the program as it is; run() needs no tracing.")
