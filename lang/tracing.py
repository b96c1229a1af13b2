"""Runs a program's function without a model: what it writes becomes a plan, what it reads becomes symbols.

The states are the language's own, with recorders in the place of interpreters, so parameters, seeds and the order of
nodes are those of a run. Used by program.trace and by compiled programs, which fill these states from the plan's
events (compiling.py). Knows no backend.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from palmette.lang.backends.base import Backend
from palmette.lang.control import Body, Control, Match, Repeat, When, decided, write
from palmette.lang.errors import Location, ProgramError, TraceError, caller
from palmette.lang.instructions import (
    Generation,
)
from palmette.lang.loop import refuse_on
from palmette.lang.nodes import AnyOrder, Expr, GenNode, TextNode
from palmette.lang.recording import MISSING, Ambiguous, Recorded, Recorder, Tracer, has_symbols
from palmette.lang.sampling import SamplingOptions
from palmette.lang.state import ProgramState
from palmette.lang.symbols import Symbol, condition_of
from palmette.lang.trace import Trace
from palmette.lang.variables import Variable
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.programs import Scalar, Value


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


class TracingState(ProgramState):
    """A state while its program is traced. Once that is over it reads like any other."""

    _interpreter: Recorder

    def __init__(
        self,
        backend: Backend,
        sampling: SamplingOptions,
        tracer: Tracer,
        *,
        namespace: str = "",
        parent: TracingState | None = None,
    ) -> None:
        self.tracer = tracer
        self.on_traced: Callable[[TracingState], None] | None = None  # of the program's own state
        super().__init__(backend, sampling, namespace=namespace, parent=parent)
        self._is_root = parent is None
        if parent is None:
            tracer.tracks.append(self._interpreter)

    def _executed(self, *, waits_for_fork: bool) -> Recorder:
        return Recorder(self._backend, self._scope, self.tracer)

    def _child(self, sampling: SamplingOptions) -> TracingState:
        return TracingState(self._backend, sampling, self.tracer, namespace=self._namespace, parent=self)

    @property
    def recorder(self) -> Recorder:
        return self._interpreter

    def finish(self, why: str = "the program has ended") -> None:
        """The function has returned: what it wrote can be run. Raises TraceError."""
        super().finish(why)
        if self._is_root and not self.tracer.over:
            self.tracer.close(self.ret_value)
            if self.on_traced is not None:
                self.on_traced(self)

    def abandon(self, cause: BaseException, where: Location, node: str) -> None:
        super().abandon(cause, where, node)
        self.tracer.end()

    # Reading

    @property
    def _traced(self) -> bool:
        """Whether there are values to read. Who reads while another thread runs the function waits for that."""
        if not self.tracer.over and self._traced_elsewhere():
            self.tracer.closed.exception()
        return self.tracer.over

    async def _atraced(self) -> bool:
        if not self.tracer.over and self._traced_elsewhere():
            await self.tracer.closed
        return self.tracer.over

    def _traced_elsewhere(self) -> bool:
        """Whether another than the reader runs the function, or has just returned from it: the tracing ends soon."""
        return self._written_elsewhere() or (self._is_root and self._over is not None)

    def get_var(self, name: str) -> Any:
        return super().get_var(name) if self._traced else self._symbolic(name)

    async def aget(self, name: str) -> Any:
        return await super().aget(name) if await self._atraced() else self._symbolic(name)

    def __contains__(self, name: object) -> bool:
        traced = self._traced
        for variable in self._undecided(name):
            if not traced:
                raise TraceError(f"Whether there is an s[{name!r}] hangs on the branch that is taken.")
            self._decide(variable)
        return super().__contains__(name)

    def variables(self) -> list[str]:
        if self._traced:
            for variable in self._undecided():
                self._decide(variable)
        return super().variables()

    def _variable(self, name: str) -> Variable:
        for variable in self._undecided(name):
            self._decide(variable)
        return super()._variable(name)

    async def _avariable(self, name: str) -> Variable:
        for variable in self._undecided(name):
            with contextlib.suppress(ProgramError):
                await variable.value
        return await super()._avariable(name)

    def _undecided(self, *names: object) -> list[Variable]:
        """Variables, of these names or of all, that the taken branches may not have written."""
        if not self.tracer.undecided:
            return []
        found = [variable for variable in self._scope if not names or variable.name in names]
        return [variable for variable in found if variable in self.tracer.undecided]

    def _decide(self, variable: Variable) -> None:
        """Wait until it is there, or known not to come."""
        refuse_on(self._interpreter.loop)
        variable.value.exception()

    def text(self, *, partial: bool = False) -> Any:
        return super().text(partial=partial) if self._traced else self._text_so_far()

    async def atext(self) -> Any:
        return await super().atext() if await self._atraced() else self._text_so_far()

    def messages(self, *, partial: bool = False) -> list[dict[str, str]]:
        self._refuse("messages()")
        return super().messages(partial=partial)

    async def amessages(self) -> list[dict[str, str]]:
        await self._atraced()
        self._refuse("amessages()")
        return await super().amessages()

    def get_meta_info(self, name: str) -> dict[str, Any]:
        self._refuse(f"get_meta_info({name!r})")
        return super().get_meta_info(name)

    async def aget_meta_info(self, name: str) -> dict[str, Any]:
        await self._atraced()
        self._refuse(f"aget_meta_info({name!r})")
        return await super().aget_meta_info(name)

    def text_iter(self, var_name: str | None = None, index: int = 0) -> Iterator[str]:
        self._refuse("text_iter()")
        return super().text_iter(var_name, index)

    async def text_async_iter(
        self, var_name: str | None = None, return_meta_data: bool = False, index: int = 0
    ) -> AsyncIterator[Any]:
        await self._atraced()
        self._refuse("text_async_iter()")
        async for piece in super().text_async_iter(var_name, return_meta_data, index):
            yield piece

    def error(self) -> ProgramError | None:
        self._refuse("error()")
        return super().error()

    def usage(self) -> Any:
        self._refuse("usage()")
        return super().usage()

    def trace(self) -> Trace:
        self._refuse("trace()")
        return super().trace()

    def _refuse(self, what: str) -> None:
        if not self._traced:
            raise TraceError(f"s.{what} tells what has been computed, and nothing is while a program is traced.")

    def _symbolic(self, name: str) -> Any:
        value = self.tracer.values[self._scope.find(name, wait=False)]
        if isinstance(value, Ambiguous):
            raise TraceError(f"s[{name!r}] {value.why}.", hint="Give it another name in one of the branches.")
        return value

    def _text_so_far(self) -> Symbol:
        symbol = self.tracer.symbol("text()")
        where = caller()
        self._check_writable(where)
        self.tracer.check_owner(self._interpreter, where)
        self._interpreter.add(plans.Note(slot=symbol.value.slot, since_mark=False), "text()", where)
        return symbol

    # Writing

    def set_var(self, name: str, value: Any) -> None:
        if self.tracer.over:
            super().set_var(name, value)
            return
        self._check_writable(caller())
        if isinstance(value, str):
            pieces = list(self.tracer.pieces(value))
            if len(pieces) == 1 and isinstance(pieces[0], Symbol):
                value = pieces[0]
            elif any(isinstance(piece, Symbol) for piece in pieces):
                raise TraceError(f"s[{name!r}] is set to a string made of values to come.", hint="Append it instead.")
        variable = self._scope.declare(name)
        self.tracer.values[variable] = value
        if has_symbols(value):
            self.tracer.deferred.append((variable, value))
        else:
            variable.fill(value)

    def call(self, name: str, function: Any, *arguments: Any, seconds: float | None = None) -> None:
        if self.tracer.over:
            super().call(name, function, *arguments, seconds=seconds)
            return
        where = caller()
        self._check_writable(where)
        self.tracer.check_owner(self._interpreter, where)
        values = tuple(self._argument(argument, name) for argument in arguments)
        symbol = self.tracer.symbol(name)
        operation = plans.Call(arguments=values, slot=symbol.value.slot, seconds=seconds)
        recorded = self._interpreter.add(operation, f"call({name!r})", where)
        recorded.function = function
        variable = self._scope.declare(name)
        self.tracer.values[variable] = symbol
        recorded.fills = [(variable, symbol)]

    def _argument(self, argument: Any, name: str) -> Scalar | Value:
        if isinstance(argument, Symbol):
            return argument.value if argument.is_text else argument.as_text()
        if isinstance(argument, str | int | float | bool):
            return argument
        raise TraceError(f"call({name!r}): {argument!r} is no text, number or bool, so it can't be sent.")

    def gather(self, children: list[ProgramState]) -> None:
        before = set(self._scope.names())
        super().gather(children)
        if self.tracer.over:
            return
        for name in self._scope.names():
            if name not in before:
                sources = [variable for child in children for variable in child._scope if variable.name == name]
                target = self._scope.find(name, wait=False)
                self.tracer.values[target] = [self.tracer.values[source] for source in sources]

    def on_begin(self, callback: Callable[[Sequence[Any]], None]) -> None:
        send = self.on_traced

        def traced(state: TracingState) -> None:
            callback(state.tracer.plan.tracks[0][0].parts)
            if send is not None:
                send(state)

        self.on_traced = traced

    def _append(self, items: tuple[Expr, ...], where: Location) -> None:
        if self.tracer.over:
            super()._append(items, where)  # which says that the program has ended
            return
        for item in items:
            if isinstance(item, AnyOrder):
                item = self._arranged(item)
            for piece in self.tracer.pieces(item.text) if isinstance(item, TextNode) else (item,):
                if not isinstance(piece, Symbol):
                    super()._append((piece,), where)
                    continue
                if not piece.is_text:
                    piece.refuse("is appended, and is no text", "Write str(…) around it.")
                self._check_writable(where)
                self._interpreter.passive(piece, where)
                self._behind_space = None  # type: ignore[assignment]

    def _generation(self, item: GenNode, where: Location) -> Generation:
        self._interpreter.spaced = None
        if self._behind_space is None and item.type is not None and item.type.behind_space is not None:
            self._interpreter.spaced = self._parameters(item, where, spaced=True).params
        return super()._generation(item, where)

    # Control

    def _control(self, item: Control, where: Location) -> None:
        if self.tracer.over:
            super()._control(item, where)
            return
        self._forks += 1
        match item:
            case When(condition, then, otherwise):
                truth = decided(self, condition)
                if isinstance(truth, Symbol) or not isinstance(truth, bool):
                    self._branches(item, [(condition_of(truth), then), (None, otherwise)], where)
                else:
                    with self._written_in(0 if truth else 1):
                        write(self, then if truth else otherwise)
            case Match(name, cases, otherwise):
                subject = self._symbolic(name)
                ways = [(condition_of(subject == case), body) for case, body in cases.items()]
                self._branches(item, [*ways, (None, otherwise)], where)
            case Repeat():
                self._passes(item, where)

    def _branches(self, item: Control, ways: Sequence[tuple[Any, Body]], where: Location) -> None:
        """One of several branches is taken: the first whose condition holds."""
        recorder, start, exits = self._interpreter, self._standing(), list[_Exit]()
        for number, (condition, body) in enumerate(ways):
            self._stand(start)
            skip = None
            if condition is not None:
                skip = recorder.add(plans.Jump(target=0, condition=condition, where=False), item, where)
            with self.tracer.block(recorder), self._written_in(number):
                write(self, body)
            exits.append(self._exit(item, where))
            if skip is not None:
                _aim(skip, recorder.position)
        self._meet(item, start, exits, where)

    def _passes(self, item: Repeat, where: Location) -> None:
        """The body as often as it may be repeated, with a way out behind each pass."""
        recorder, start, exits = self._interpreter, self._standing(), list[_Exit]()
        for number in range(item.at_most):
            with self.tracer.block(recorder), self._written_in(number):
                write(self, item.body)
            truth = item.until(self) if item.until is not None and number + 1 < item.at_most else False
            if number + 1 == item.at_most or truth is True:
                exits.append(self._exit(item, where))
                break
            if truth is False:
                continue
            skip = recorder.add(plans.Jump(target=0, condition=condition_of(truth), where=False), item, where)
            exits.append(self._exit(item, where))
            _aim(skip, recorder.position)
        self._meet(item, start, exits, where)

    def _standing(self) -> _Standing:
        variables = {variable.name: variable for variable in self._scope}
        return _Standing(variables, self._role, self._behind_space)

    def _stand(self, standing: _Standing) -> None:
        self._scope.restore(standing.variables)
        self._role = standing.role
        self._behind_space = standing.behind_space  # type: ignore[assignment]

    def _exit(self, item: Control, where: Location) -> _Exit:
        settle = self._interpreter.add(plans.Settle(targets=(), sources=()), item, where)
        jump = self._interpreter.add(plans.Jump(target=0), item, where)
        return _Exit(settle, jump, self._standing())

    def _meet(self, item: Control, start: _Standing, exits: Sequence[_Exit], where: Location) -> None:
        """Behind the branches: variables that some of them wrote have one value again, whichever was taken."""
        for leaving in exits:
            _aim(leaving.jump, self._interpreter.position)
        if len({leaving.standing.role for leaving in exits}) > 1:
            raise TraceError(f"{item!s}: one branch leaves a turn open, another doesn't.", where=where)
        spaces = {leaving.standing.behind_space for leaving in exits}
        self._stand(
            start._replace(role=exits[0].standing.role, behind_space=spaces.pop() if len(spaces) == 1 else None)
        )
        for name in dict.fromkeys(name for leaving in exits for name in leaving.standing.variables):
            variables = [leaving.standing.variables.get(name) for leaving in exits]
            if all(variable is start.variables.get(name) for variable in variables):
                continue
            values = [self.tracer.values[variable] if variable is not None else MISSING for variable in variables]
            merged = self._merged(name, values, exits)
            target = self._scope.declare(name)
            if any(value is MISSING for value in values) or not self.tracer.undecided.isdisjoint(variables):
                self.tracer.undecided.add(target)
            self.tracer.values[target] = merged
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
        merged = self.tracer.symbol(name, symbols[0].type if symbols else None)
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
