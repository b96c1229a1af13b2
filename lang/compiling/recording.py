"""What a traced program writes, taken down as a plan; and the strings in which it puts values that are not there yet.

One Tracer a traced program, one Recorder a state, in the interpreter's place. Used by tracing.py, which makes the
states, and by compiled.py, which fills them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from palmette.lang.arrival import Arrival
from palmette.lang.backends.base import Backend
from palmette.lang.compiling.symbols import Symbol
from palmette.lang.errors import Location, ProgramError, TraceError, UnknownVariable, caller
from palmette.lang.interpreter.executor import Executor
from palmette.lang.interpreter.instructions import (
    Barrier,
    Concatenate,
    End,
    Fork,
    Generation,
    Node,
    ScopeBegin,
    ScopeEnd,
    Selection,
)
from palmette.lang.interpreter.planning import part_of
from palmette.lang.interpreter.variables import Scope, Variable
from palmette.lang.nodes import Expr, RoleBegin, RoleEnd, TextNode
from palmette.lang.settling import REASONING_SUFFIX
from palmette.lang.types import OutputType
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.programs import MOST_OPERATIONS, Insert, Operation, Piece, Plan, Value
from palmette.runtime.messages.sampling import SamplingParams

Passive = TextNode | RoleBegin | RoleEnd | Symbol


@dataclass(slots=True)
class Recorded:
    """An operation, the node that it comes from, and the text and turns before it."""

    operation: Operation
    node: Any  # an instruction; of control nodes the node of the language
    where: Location
    passive: Sequence[Passive] = ()
    fills: list[tuple[Variable, Any]] = field(default_factory=list)  # of a Settle: variables, and what they get
    function: Any = None  # of a Call


class Ambiguous(NamedTuple):
    """What a variable is that was written in ways that no single symbol can stand for."""

    why: str


MISSING = Ambiguous("was not written")


class Tracer:
    """What the states of one traced program share."""

    def __init__(self) -> None:
        self.tracks: list[Recorder] = []
        self.values: dict[Variable, Any] = {}
        self.names: dict[int, str] = {}  # of slots, for people
        self.types: dict[int, OutputType] = {}
        self.deferred: list[tuple[Variable, Any]] = []  # variables set to what is not there yet
        self.undecided: set[Variable] = set()  # written by some branches only
        self.over = False
        self.closed: Arrival[None] = Arrival()  # for who reads from elsewhere while the function still runs
        self.size = 0  # operations
        self._nonce = secrets.token_hex(4)
        self._markers: dict[str, tuple[Symbol, Location]] = {}
        self._written: set[str] = set()  # markers that were appended
        self._pattern = re.compile(rf"\x1cpaLMette-{self._nonce}-\d+\x1d")
        self._blocks: list[tuple[Recorder, set[Recorder]]] = []

    def slot(self, name: str, type: OutputType | None = None) -> int:
        number = len(self.names)
        self.names[number] = name
        if type is not None:
            self.types[number] = type
        return number

    def symbol(self, name: str, type: OutputType | None = None) -> Symbol:
        return Symbol(self, name, Value(self.slot(name, type)), type)

    def marker(self, symbol: Symbol) -> str:
        """Stands for the symbol in a string. It begins and ends with what counts as space, and has letters of both
        cases: a string that is stripped, split or put in another case before it is appended is found out."""
        text = f"\x1cpaLMette-{self._nonce}-{len(self._markers)}\x1d"
        self._markers[text] = (symbol, caller())
        return text

    def pieces(self, text: str) -> Iterator[Expr]:
        """Text that is appended, with symbols where their markers stand."""
        at = 0
        for found in self._pattern.finditer(text):
            if found.start() > at:
                yield TextNode(text[at : found.start()])
            symbol, _ = self._markers[found[0]]
            self._written.add(found[0])
            yield Symbol(self, symbol.name, symbol.as_text())
            at = found.end()
        if at < len(text):
            yield TextNode(text[at:])

    def keep(self, value: Any) -> None:
        """Strings in `value` (a result of the program) are used as they are."""
        if isinstance(value, str):
            self._written.update(self._pattern.findall(value))
        elif isinstance(value, dict):
            for each in value.values():
                self.keep(each)
        elif isinstance(value, list | tuple):
            for each in value:
                self.keep(each)

    def filled(self, text: str, read: Callable[[Symbol], Any]) -> str:
        """The string with the values of the symbols that were formatted in it."""
        return self._pattern.sub(lambda found: str(read(self._markers[found[0]][0])), text)

    def close(self, result: Any = None) -> None:
        """The function has returned. Raises TraceError where it looked into a string that has a symbol in it."""
        self.keep(result)
        for marker, (symbol, where) in self._markers.items():
            if marker not in self._written:
                raise TraceError(
                    f"{symbol!r} was made part of a string that was not appended as it was.",
                    hint="A string with a value to come can be appended, but not looked into, changed or sent.",
                    where=where,
                )
        self.end()

    def end(self) -> None:
        """Nothing is traced any more."""
        self.over = True
        self.closed.set_result(None)

    # Blocks of control nodes

    @contextmanager
    def block(self, owner: Recorder) -> Iterator[None]:
        self._blocks.append((owner, set()))
        try:
            yield
        finally:
            _, made = self._blocks.pop()
            if self._blocks:
                self._blocks[-1][1].update(made)

    def made(self, recorder: Recorder) -> None:
        if self._blocks:
            self._blocks[-1][1].add(recorder)

    def check_owner(self, recorder: Recorder, where: Location) -> None:
        if self._blocks:
            owner, made = self._blocks[-1]
            if recorder is not owner and recorder not in made:
                raise TraceError(
                    "A branch of when, match or repeat writes to another state than the one that it stands in.",
                    hint="Write to the state that the branch is given, or to its forks.",
                    where=where,
                )

    @property
    def plan(self) -> Plan:
        return Plan(
            tuple(tuple(each.operation for each in recorder.recorded) for recorder in self.tracks), len(self.names)
        )


class Recorder(Executor):
    """Takes one state's nodes down as operations. What the plan's events bring is gathered as an interpreter's is."""

    def __init__(self, backend: Backend, scope: Scope, tracer: Tracer) -> None:
        super().__init__(backend, scope)
        self.tracer = tracer
        self.recorded: list[Recorded] = []
        self.started = False  # events have come
        self.spaced: SamplingParams | None = None  # of the next generation, behind a space
        self.on_failure: Any = None  # called when the state fails from outside
        self._passives: list[Passive] = []
        tracer.made(self)

    @property
    def position(self) -> int:
        return len(self.recorded)

    def submit(self, nodes: Sequence[Node], where: Location) -> None:
        if self.failure is not None:
            raise self.failure.again() from self.failure.cause
        if not any(isinstance(node, End | Barrier) for node in nodes):
            self.tracer.check_owner(self, where)
        for node in nodes:
            self._record(node, where)

    def fail(self, error: ProgramError) -> None:
        if self.take_failure(error):
            if self.on_failure is not None:
                self.on_failure(self)
            self.gathered.stream.end(error)
            self.done.set_exception(error)

    def passive(self, node: Passive, where: Location) -> None:
        self.tracer.check_owner(self, where)
        self._passives.append(node)

    def add(self, operation: Operation, node: Any, where: Location) -> Recorded:
        """Record an operation behind the text and turns so far."""
        tracer = self.tracer
        tracer.size += 1
        if tracer.size > MOST_OPERATIONS:
            raise TraceError(f"The program has more than {MOST_OPERATIONS} operations.", where=where)
        if self._passives:
            operation = msgspec.structs.replace(operation, parts=tuple(map(_piece, self._passives)))
        recorded = Recorded(operation, node, where, self._passives)
        self._passives = []
        self.recorded.append(recorded)
        return recorded

    def _record(self, node: Node, where: Location) -> None:
        match node:
            case TextNode() | RoleBegin() | RoleEnd():
                self._passives.append(node)
            case Generation():
                self._record_generation(node, where)
            case Selection(node=selection, variable=variable):
                if selection.method.wire_name is None:
                    raise TraceError(
                        f"{selection!s} chooses by {selection.method!r}, which only this process knows.", where=where
                    )
                symbol = self.tracer.symbol(selection.name or "select")
                operation = plans.Choose(
                    choices=selection.choices,
                    method=selection.method.wire_name,
                    slot=symbol.value.slot,
                    priority=node.priority,
                    timeout=node.timeout,
                )
                self.add(operation, node, where)
                self._reads(variable, symbol)
            case Fork(children):
                tracks = []
                for child in children:
                    assert isinstance(child, Recorder)
                    tracks.append(len(self.tracer.tracks))
                    self.tracer.tracks.append(child)
                self.add(plans.Divide(tracks=tuple(tracks)), node, where)
            case Concatenate(children):
                tracks = [self.tracer.tracks.index(child) for child in children]  # type: ignore[arg-type]
                self.add(plans.Join(tracks=tuple(tracks)), node, where)
            case Barrier(reached):
                reached.set_result(None)  # nothing is waited for
            case ScopeBegin(variable):
                symbol = self.tracer.symbol(variable.name)
                self.add(plans.Mark(slot=symbol.value.slot), node, where)
                self._reads(variable, symbol)
            case ScopeEnd(variable):
                self.add(plans.Note(slot=self.tracer.values[variable].value.slot), node, where)
            case End():
                self.add(plans.Finish(), node, where)
            case _:
                return  # hints are the executor's own affair

    def _record_generation(self, generation: Generation, where: Location) -> None:
        node, name = generation.node, generation.node.name or "gen"
        count = node.count
        symbols = [self.tracer.symbol(name, node.type) for _ in range(count)]
        thoughts = [self.tracer.symbol(name + REASONING_SUFFIX) for _ in range(count if node.reasoning else 0)]
        params = tuple(generation.step(index=index).params for index in range(count))
        spaced: tuple[SamplingParams, ...] = ()
        if self.spaced is not None:
            other = msgspec.structs.replace(generation.params, constraint=self.spaced.constraint)
            spaced = tuple(msgspec.structs.replace(each, constraint=other.constraint) for each in params)
        operation = plans.Write(
            params=params,
            slots=tuple(symbol.value.slot for symbol in symbols),
            spaced=spaced,
            reasoning=node.reasoning,
            thoughts=tuple(symbol.value.slot for symbol in thoughts),
            priority=generation.priority,
            timeout=generation.timeout,
        )
        self.add(operation, generation, where)
        self._reads(generation.variable, symbols if count > 1 else symbols[0])
        self._reads(generation.thoughts, thoughts if count > 1 else next(iter(thoughts), None))

    def _reads(self, variable: Variable | None, value: Any) -> None:
        if variable is not None:
            self.tracer.values[variable] = value


def _piece(node: Passive) -> Piece:
    return Insert(node.value) if isinstance(node, Symbol) else part_of(node)


def has_symbols(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(has_symbols, value))
    if isinstance(value, dict):
        return any(map(has_symbols, value.values()))
    return isinstance(value, Symbol) or (isinstance(value, str) and "\x1cpaLMette-" in value)


def refusal(error: Exception, tracer: Tracer, where: Location | None) -> Exception:
    """What a traced program raised, as a TraceError where it may have meant a value that is not there yet."""
    if isinstance(error, TraceError | ProgramError) or not tracer.names:
        return error
    if isinstance(error, UnknownVariable) and not has_symbols(str(error)):
        return error  # a name that the program as it is doesn't know, either
    if isinstance(error, TypeError | AttributeError | ValueError | LookupError | InvalidRequest):
        return TraceError(
            f"{type(error).__name__}: {str(error).rstrip('.')}. While a program is traced, what it reads is not there"
            " yet.",
            where=where,
        )
    return error
