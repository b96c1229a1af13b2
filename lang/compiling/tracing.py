"""Runs a program's function without a model: what it writes becomes a plan, what it reads becomes symbols.

The states are the language's own, with recorders in the place of interpreters, so parameters, seeds and the order of
nodes are those of a run. Used by program.trace and by compiled programs, which fill these states from the plan's
events (compiled.py). Knows no backend.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from palmette.lang.backends.base import Backend
from palmette.lang.compiling.recording import Ambiguous, Recorder, Tracer, has_symbols
from palmette.lang.compiling.symbols import Symbol, condition_of
from palmette.lang.compiling.traced_flow import TracedFlow
from palmette.lang.control import Control, Match, Repeat, When, decided, write
from palmette.lang.errors import Location, ProgramError, TraceError, UnknownVariable, caller
from palmette.lang.interpreter.instructions import (
    Generation,
)
from palmette.lang.interpreter.variables import Variable
from palmette.lang.loop import refuse_on
from palmette.lang.nodes import AnyOrder, Expr, GenNode, TextNode
from palmette.lang.sampling import SamplingOptions
from palmette.lang.state import ProgramState
from palmette.lang.traces.trace import Trace
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.programs import Scalar, Value


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
        try:
            value = self.tracer.values[self._scope.find(name, wait=False)]
        except UnknownVariable as error:
            raise self._unknown(name) or error from None
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

    def gather(self, children: list[ProgramState]) -> dict[Variable, list[Variable]]:
        lists = super().gather(children)
        if not self.tracer.over:
            for gathered, variables in lists.items():
                self.tracer.values[gathered] = [self.tracer.values[variable] for variable in variables]
        return lists

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
                item = TextNode("".join(self._settling.arranged(item.texts)))
            for piece in self.tracer.pieces(item.text) if isinstance(item, TextNode) else (item,):
                if not isinstance(piece, Symbol):
                    super()._append((piece,), where)
                    continue
                if not piece.is_text:
                    piece.refuse("is appended, and is no text", "Write str(…) around it.")
                self._check_writable(where)
                self._interpreter.passive(piece, where)
                self._settling.behind_space = None

    def _generation(self, item: GenNode, where: Location) -> Generation:
        self._interpreter.spaced = None
        if self._settling.behind_space is None and item.type is not None and item.type.behind_space is not None:
            self._interpreter.spaced = self._settling.parameters(item, where, spaced=True).params
        return super()._generation(item, where)

    def _control(self, item: Control, where: Location) -> None:
        if self.tracer.over:
            super()._control(item, where)
            return
        self._settling.decision()
        match item:
            case When(condition, then, otherwise):
                truth = decided(self, condition)
                if isinstance(truth, Symbol) or not isinstance(truth, bool):
                    self._flow(item, where).branches([(condition_of(truth), then), (None, otherwise)])
                else:
                    with self._written_in(0 if truth else 1):
                        write(self, then if truth else otherwise)
            case Match(name, cases, otherwise):
                subject = self._symbolic(name)
                ways = [(condition_of(subject == case), body) for case, body in cases.items()]
                self._flow(item, where).branches([*ways, (None, otherwise)])
            case Repeat():
                self._flow(item, where).passes(item)

    def _flow(self, item: Control, where: Location) -> TracedFlow:
        return TracedFlow(self, self._interpreter, self._scope, self._settling, item, where)
