"""Blocks of a state (`with s.user():`, `with s.var_scope(…):`), and variables gathered from forks. For state only."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from palmette.lang.errors import ProgramError, caller
from palmette.lang.interpreter.instructions import ScopeBegin, ScopeEnd
from palmette.lang.interpreter.variables import Variable
from palmette.lang.nodes import RoleBegin, RoleEnd

if TYPE_CHECKING:
    from palmette.lang.state import ProgramState


class Turn:
    """A role around a block."""

    def __init__(self, state: ProgramState, role: str) -> None:
        self._state = state
        self._role = role

    def __enter__(self) -> ProgramState:
        self._state._append((RoleBegin(self._role),), caller())
        return self._state

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self._state._append((RoleEnd(self._role),), caller())


class VarScope:
    """A block whose text becomes a variable."""

    def __init__(self, state: ProgramState, name: str) -> None:
        self._state = state
        self._name = name

    def __enter__(self) -> ProgramState:
        where = caller()
        self._state._check_writable(where)
        self._variable = self._state._scope.declare(self._name)
        self._state._submit([ScopeBegin(self._variable)], where)
        return self._state

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self._state._submit([ScopeEnd(self._variable)], caller())


def collect(target: Variable, sources: list[Variable]) -> None:
    """Fill `target` with the list of the sources' values once all are there."""
    lock = threading.Lock()
    missing = len(sources)

    def arrived() -> None:
        nonlocal missing
        with lock:
            missing -= 1
            if missing:
                return
        for source in sources:
            error = source.value.exception()
            if isinstance(error, ProgramError):
                target.fail(error)
                return
        target.fill([source.value.result() for source in sources])

    for source in sources:
        source.value.on_done(arrived)
