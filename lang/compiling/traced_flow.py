"""A when, match or repeat while its program is traced: every way is written down, with jumps between them, and behind
them the variables that some of the ways wrote have one value again.

One TracedFlow a control node; TracingState (tracing.py) is the only caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from palmette.lang.compiling.recording import MISSING, Ambiguous, Recorded, Recorder
from palmette.lang.compiling.symbols import Symbol, condition_of
from palmette.lang.control import Body, Control, Repeat, write
from palmette.lang.errors import Location, TraceError
from palmette.lang.interpreter.variables import Scope, Variable
from palmette.lang.settling import Settling
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.programs import Operation, Scalar, Value


class _Standing(NamedTuple):
    """Where a state stands before a branch is written."""

    variables: dict[str, Variable]
    role: str | None
    behind_space: bool | None


class _Exit(NamedTuple):
    """The end of a branch: what it leaves behind."""

    settle: Recorded
    jump: Recorded
    standing: _Standing


class TracedFlow:
    """Of `item`, written at the program's line `where` into `state`."""

    def __init__(
        self, state: Any, recorder: Recorder, scope: Scope, settling: Settling, item: Control, where: Location
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._tracer = recorder.tracer
        self._scope = scope
        self._settling = settling
        self._item = item
        self._where = where

    def branches(self, ways: Sequence[tuple[Any, Body]]) -> None:
        """One of several branches is taken: the first whose condition holds."""
        recorder, start, exits = self._recorder, self._standing(), list[_Exit]()
        for number, (condition, body) in enumerate(ways):
            self._stand(start)
            skip = None
            if condition is not None:
                skip = self._add(plans.Jump(target=0, condition=condition, where=False))
            with self._tracer.block(recorder), self._settling.written_in(number):
                write(self._state, body)
            exits.append(self._exit())
            if skip is not None:
                _aim(skip, recorder.position)
        self._meet(start, exits)

    def passes(self, item: Repeat) -> None:
        """The body as often as it may be repeated, with a way out behind each pass."""
        recorder, start, exits = self._recorder, self._standing(), list[_Exit]()
        for number in range(item.at_most):
            with self._tracer.block(recorder), self._settling.written_in(number):
                write(self._state, item.body)
            truth = item.until(self._state) if item.until is not None and number + 1 < item.at_most else False
            if number + 1 == item.at_most or truth is True:
                exits.append(self._exit())
                break
            if truth is False:
                continue
            skip = self._add(plans.Jump(target=0, condition=condition_of(truth), where=False))
            exits.append(self._exit())
            _aim(skip, recorder.position)
        self._meet(start, exits)

    def _add(self, operation: Operation) -> Recorded:
        return self._recorder.add(operation, self._item, self._where)

    def _standing(self) -> _Standing:
        variables = {variable.name: variable for variable in self._scope}
        return _Standing(variables, self._settling.role, self._settling.behind_space)

    def _stand(self, standing: _Standing) -> None:
        self._scope.restore(standing.variables)
        self._settling.role = standing.role
        self._settling.behind_space = standing.behind_space

    def _exit(self) -> _Exit:
        settle = self._add(plans.Settle(targets=(), sources=()))
        jump = self._add(plans.Jump(target=0))
        return _Exit(settle, jump, self._standing())

    def _meet(self, start: _Standing, exits: Sequence[_Exit]) -> None:
        """Behind the branches: variables that some of them wrote have one value again, whichever was taken."""
        for leaving in exits:
            _aim(leaving.jump, self._recorder.position)
        if len({leaving.standing.role for leaving in exits}) > 1:
            raise TraceError(f"{self._item!s}: one branch leaves a turn open, another doesn't.", where=self._where)
        spaces = {leaving.standing.behind_space for leaving in exits}
        self._stand(
            start._replace(role=exits[0].standing.role, behind_space=spaces.pop() if len(spaces) == 1 else None)
        )
        for name in dict.fromkeys(name for leaving in exits for name in leaving.standing.variables):
            variables = [leaving.standing.variables.get(name) for leaving in exits]
            if all(variable is start.variables.get(name) for variable in variables):
                continue
            values = [self._tracer.values[variable] if variable is not None else MISSING for variable in variables]
            merged = self._merged(name, values, exits)
            target = self._scope.declare(name)
            if any(value is MISSING for value in values) or not self._tracer.undecided.isdisjoint(variables):
                self._tracer.undecided.add(target)
            self._tracer.values[target] = merged
            for leaving, value in zip(exits, values, strict=True):
                leaving.settle.fills.append((target, value))

    def _merged(self, name: str, values: Sequence[Any], exits: Sequence[_Exit]) -> Any:
        """One value for those of several branches."""
        if all(isinstance(value, list) for value in values) and len({len(value) for value in values}) == 1:
            return [self._merged(name, column, exits) for column in zip(*values, strict=True)]
        symbols = [value for value in values if isinstance(value, Symbol)]
        types = {symbol.type.name if symbol.type is not None else "str" for symbol in symbols}
        types |= {type(value).__name__ for value in values if not isinstance(value, Symbol) and value is not MISSING}
        if len(types) != 1 or not all(isinstance(value, Symbol | str) or value is MISSING for value in values):
            return Ambiguous(
                f"is written as different things ({', '.join(sorted(types)) or 'lists'}) by several branches"
            )
        merged = self._tracer.symbol(name, symbols[0].type if symbols else None)
        for leaving, value in zip(exits, values, strict=True):
            operation = leaving.settle.operation
            assert isinstance(operation, plans.Settle)
            source: Scalar | Value | None = None
            if isinstance(value, Symbol):
                source = value.value if value.is_text else Value(value.value.slot)
            elif isinstance(value, str):
                source = value
            leaving.settle.operation = msgspec.structs.replace(
                operation,
                targets=(*operation.targets, merged.value.slot),
                sources=(*operation.sources, source),
            )
        return merged


def _aim(jump: Recorded, target: int) -> None:
    jump.operation = msgspec.structs.replace(jump.operation, target=target)
