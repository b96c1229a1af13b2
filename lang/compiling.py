"""Compiled programs: a traced program goes to its backend as one request, and the answer's events fill its states.

The states are those that the tracing made (tracing.py); each event takes the same way through them that an
interpreter's results take, so what is read afterwards is what a run without compiling gives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from palmette.lang.backends.base import Backend, BackendBranch, ProgramRun
from palmette.lang.control import Control
from palmette.lang.errors import Location, ProgramError, TraceError
from palmette.lang.instructions import Concatenate, Fork, Generation, ScopeBegin, ScopeEnd, Selection
from palmette.lang.loop import finished, language_loop
from palmette.lang.nodes import RoleBegin, RoleEnd, TextNode
from palmette.lang.outputs import OutputRecord
from palmette.lang.planning import part_of
from palmette.lang.recording import MISSING, Ambiguous, Passive, Recorded, Recorder, Tracer, has_symbols
from palmette.lang.sampling import SamplingOptions
from palmette.lang.symbols import Symbol
from palmette.lang.threads import program_threads
from palmette.lang.tracing import TracingState
from palmette.lang.track_calls import TrackCalls
from palmette.lang.variables import Variable
from palmette.runtime.errors import Aborted, InternalError, InvalidRequest, Unsupported, from_info
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.branches import Text
from palmette.runtime.messages.programs import CallResult, Operation, ProgramEvent, RunProgram, Scalar, Value, resolved


class RunsPrograms(Protocol):
    """A backend that takes whole programs."""

    async def run_program(self, request: RunProgram) -> ProgramRun: ...


class NoBackend:
    """What a program is traced on where nothing is going to be run."""

    name = "tracing"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return language_loop()

    async def open(self, *, namespace: str = "") -> BackendBranch:
        raise InternalError("A traced program opens no branch.")

    async def flush_cache(self) -> int:
        return 0

    async def close(self) -> None:
        """Nothing to release."""


class Compilation:
    """How the runs of a compiled program are made. `refused`: why they are not, where that was allowed."""

    def __init__(self, or_interpret: bool = False, returns: bool = False, critical_first: bool = False) -> None:
        self.refused: TraceError | None = None
        self._options = {"returns": returns, "critical_first": critical_first}
        self._decided = not or_interpret

    def wanted(self, trace: Callable[[], object]) -> bool:
        """Whether runs are compiled. Where a program may be run as it is instead, its first run's trace decides."""
        if not self._decided:
            self._decided = True
            try:
                trace()
            except TraceError as error:
                self.refused = error
        return self.refused is None

    def state(self, backend: Backend, sampling: SamplingOptions, namespace: str) -> TracingState:
        """The state of a run. Raises Unsupported for a backend that takes no programs."""
        if not callable(getattr(backend, "run_program", None)):
            raise Unsupported(
                f"The {backend.name} backend runs no compiled programs.",
                hint="Run the program as it is, or on an Engine, a Runtime or a RuntimeEndpoint.",
            )
        state = TracingState(backend, sampling, Tracer(), namespace=namespace)
        state.on_traced = lambda traced: _Session(traced, backend, namespace, self._options).start()
        return state


class NotWritten(InvalidRequest):
    """Of a variable that the branches that were taken don't write."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} was not written: the branch that writes it was not taken.",
            hint="Write it in every branch, or before them.",
        )


class _Session:
    """One run: the request, and where its events go."""

    def __init__(self, state: TracingState, backend: Any, namespace: str, options: dict[str, bool]) -> None:
        self._state = state
        self._backend: RunsPrograms = backend
        self._loop: asyncio.AbstractEventLoop = backend.loop
        self._tracer = state.tracer
        self._request = RunProgram(plan=self._tracer.plan, namespace=namespace, **options)
        self.players = [_Player(recorder, self) for recorder in self._tracer.tracks]
        self._task: asyncio.Task[None] | None = None
        self._run: ProgramRun | None = None
        self._answers: set[asyncio.Future[None]] = set()
        self.texts: dict[int, str] = {}  # of slots
        self._arrived: dict[int, float] = {}  # when each was there
        self.failures: dict[int, ProgramError] = {}  # why a slot has none
        self.result = state.ret_value

    def start(self) -> None:
        """Send it, from any thread."""
        state = self._state.recorder
        state.on_failure = self._stopped_from_outside
        self._state.keep(self)

        def begin() -> None:
            self._task = self._loop.create_task(self._go())

        try:
            self._loop.call_soon_threadsafe(begin)
        except RuntimeError:
            state.engine_is_gone(Location("?", 0, "?"), "run")

    def _stopped_from_outside(self, recorder: Recorder) -> None:
        def stop() -> None:
            if self._task is not None:
                self._task.cancel()

        self._loop.call_soon_threadsafe(stop)

    async def _go(self) -> None:
        failure: BaseException | None = None
        try:
            self._run = await self._backend.run_program(self._request)
            async with aclosing(self._run.events()) as events:
                async for event in events:
                    self._take(event)
        except Exception as cause:
            failure = cause
        except asyncio.CancelledError:
            failure = Aborted("The program was stopped.")
            raise
        finally:
            self._end(failure)

    def _take(self, event: ProgramEvent) -> None:
        if event.over or event.program is not None:
            return
        self.players[event.track].take(event)

    def _end(self, failure: BaseException | None) -> None:
        for task in self._answers:
            task.cancel()
        for player in self.players:
            if failure is not None:
                player.fail(failure, *player.recorder.at)
        for variable, value in self._tracer.deferred:
            self.fill(variable, value)
        if self.result is not None and has_symbols(self.result):
            try:
                self._state.ret_value = self.real(self.result)
            except ProgramError as error:
                self.players[0].fail(error.cause, error.where, error.node)
        for player in self.players:
            player.end()

    # Values

    def put(self, slot: int, text: str) -> None:
        self.texts[slot] = text
        self._arrived[slot] = time.monotonic()

    def known(self, slot: int) -> bool:
        """Whether it is there, or known why it is not."""
        return slot in self.texts or slot in self.failures

    def ready(self, operation: Operation) -> float:
        """When the last value that the operation reads was there."""
        return max((self._arrived.get(value.slot, 0.0) for value in plans.reads(operation)), default=0.0)

    def read(self, value: Value) -> Scalar:
        return resolved(value, self.text(value.slot))

    def text(self, slot: int) -> str:
        if slot in self.texts:
            return self.texts[slot]
        if slot in self.failures:
            raise self.failures[slot].again()
        raise ProgramError(NotWritten(self._tracer.names[slot]), Location("?", 0, "?"), "a value")

    def real(self, value: Any) -> Any:
        """What the program's value is, with what symbols stand for."""
        if isinstance(value, Symbol):
            text = self.text(value.value.slot)
            return resolved(value.value, text) if value.type is None else value.type.value(text)
        if isinstance(value, list):
            return [self.real(each) for each in value]
        if isinstance(value, tuple):
            return tuple(self.real(each) for each in value)
        if isinstance(value, dict):
            return {name: self.real(each) for name, each in value.items()}
        return self._tracer.filled(value, self.real) if isinstance(value, str) else value

    def fill(self, variable: Variable, value: Any) -> None:
        if value is MISSING:
            where = Location("?", 0, "?")
            self._miss(variable, ProgramError(NotWritten(variable.name), where, f"variable {variable.name!r}"))
        if isinstance(value, Ambiguous):
            return
        try:
            variable.fill(self.real(value))
        except ProgramError as error:
            if isinstance(error.cause, NotWritten):
                self._miss(variable, error)
            variable.fail(error)

    def _miss(self, variable: Variable, error: ProgramError) -> None:
        """The branches that were taken don't write it: as if nothing ever had."""
        if variable in self._tracer.undecided:
            for recorder in self._tracer.tracks:
                recorder.scope.forget(variable)
            variable.fail(error)

    def call(self, recorded: Recorded, event: ProgramEvent) -> None:
        """The program's function, in a thread of its own; the runtime waits for what it gives."""
        operation = recorded.operation
        assert isinstance(operation, plans.Call)
        assert event.arguments is not None
        arguments = event.arguments

        def work() -> None:
            try:
                given = finished(recorded.function(*arguments))
                result = CallResult(
                    track=event.track,
                    operation=event.operation,
                    text=given if isinstance(given, str) else str(given),
                )
                failure = None
            except Exception as cause:
                failure = cause
                said = f"{type(cause).__name__}: {cause}"
                result = CallResult(track=event.track, operation=event.operation, error=said)
            self._loop.call_soon_threadsafe(self._called, recorded, result, failure)

        program_threads.submit(work).hurry()

    def _called(self, recorded: Recorded, result: CallResult, failure: Exception | None) -> None:
        operation = recorded.operation
        assert isinstance(operation, plans.Call)
        if failure is not None:
            error = (
                failure
                if isinstance(failure, ProgramError)
                else ProgramError(failure, recorded.where, str(recorded.node))
            )
            self.failures[operation.slot] = error
            for variable, _ in recorded.fills:
                variable.fail(error)
        else:
            self.put(operation.slot, result.text)
            for variable, value in recorded.fills:
                self.fill(variable, value)
        assert self._run is not None
        task = asyncio.ensure_future(self._run.answer(result))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def raised(self, recorded: Recorded) -> ProgramError | None:
        """What the function of a Call raised here, where it did."""
        operation = recorded.operation
        return self.failures.get(operation.slot) if isinstance(operation, plans.Call) else None

    def origin(self, track: int, operation: int) -> Recorded:
        return self._tracer.tracks[track].recorded[operation]


class _Player:
    """Takes the events of one track into its state."""

    def __init__(self, recorder: Recorder, session: _Session) -> None:
        self.recorder = recorder
        self.calls = TrackCalls(recorder.gathered.recording)
        self._session = session
        self._at = -1
        self._records: list[OutputRecord] = []

    def take(self, event: ProgramEvent) -> None:
        recorder = self.recorder
        if recorder.failure is not None or recorder.done.done():
            return
        recorded = recorder.recorded[event.operation]
        recorder.at = (recorded.where, recorded.node)
        if event.error is not None:
            cause = recorded if event.origin is None else self._session.origin(*event.origin)
            self.fail(self._session.raised(cause) or from_info(event.error), cause.where, cause.node)
            return
        try:
            first = event.operation > self._at
            if first:
                self._at = event.operation
                self._begin(recorded)
            self.calls.take(recorded, event, self._session.ready(recorded.operation), first=first)
            self._take(recorded, event)
        except Exception as cause:  # the output is not what the program asked for
            self.fail(cause, recorded.where, recorded.node)

    def fail(self, cause: BaseException, where: Location, node: object) -> None:
        recorder = self.recorder
        error = cause if isinstance(cause, ProgramError) else ProgramError(cause, where, str(node))
        if recorder.take_failure(error):
            for recorded in recorder.recorded:
                for slot in plans.writes(recorded.operation):
                    if slot not in self._session.texts:
                        self._session.failures.setdefault(slot, error)
            recorder.done.set_exception(error)

    def end(self) -> None:
        """Nothing more comes. What wasn't written says so."""
        recorder = self.recorder
        for variable in list(recorder.scope._own):
            if not variable.value.done():
                where, _ = recorder.at
                variable.fail(ProgramError(NotWritten(variable.name), where, f"variable {variable.name!r}"))
        recorder.gathered.stream.end(recorder.failure)
        if not recorder.done.done():
            recorder.done.set_result(None)

    def _begin(self, recorded: Recorded) -> None:
        for node in recorded.passive:
            self._passive(node)
        if isinstance(recorded.node, Generation):
            self._records = [recorded.node.record(index) for index in range(recorded.node.node.count)]

    def _passive(self, node: Passive) -> None:
        transcript = self.recorder.gathered.transcript
        match node:
            case TextNode(text):
                transcript.write(text)
            case RoleBegin(role):
                transcript.begin(role)
            case RoleEnd():
                transcript.end()
            case Symbol():
                text = str(self._session.read(node.value))
                transcript.write(text)
                self.calls.parts.append(Text(text))
                return
        self.calls.parts.append(part_of(node))

    def _take(self, recorded: Recorded, event: ProgramEvent) -> None:
        gathered, session = self.recorder.gathered, self._session
        result = event.chunk or event.scores
        if result is not None:
            gathered.grow(result.appended)
        match recorded.node, recorded.operation:
            case Generation() as node, plans.Write() as operation:
                if event.chunk is not None:
                    self._generated(node, operation, event)
            case Selection() as node, plans.Choose(slot=slot):
                if event.scores is not None and event.scores.chosen is not None:
                    session.put(slot, node.node.choices[event.scores.chosen])
                    _, chosen = gathered.selected(node, event.scores)
                    gathered.grow(chosen)
                    self.calls.end()
            case Fork(), plans.Divide(tracks=tracks):
                for index, track in enumerate(tracks):
                    self._fork(session.players[track], self.calls.fork_path(index))
            case Concatenate(children=children), plans.Join(tracks=tracks):
                for child, track in zip(children, tracks, strict=True):
                    self.calls.parts += session.players[track].calls.history
                    gathered.append_turns(child.gathered)
            case ScopeBegin(variable=variable), _:
                gathered.scope_begins(variable)
            case ScopeEnd(variable=variable), plans.Note(slot=slot):
                session.put(slot, gathered.scope_ends(variable))
            case _, plans.Note(slot=slot):
                session.put(slot, gathered.text)
            case Control(), plans.Settle(targets=targets, sources=sources):
                self._settle(recorded, targets, sources)
            case _, plans.Call():
                if event.arguments is not None:
                    session.call(recorded, event)

    def _settle(self, recorded: Recorded, targets: Sequence[int], sources: Sequence[Scalar | Value | None]) -> None:
        session = self._session
        for target, source in zip(targets, sources, strict=True):
            if isinstance(source, Value):
                if session.known(source.slot):  # else a branch within the one that was taken was not
                    session.put(target, str(session.read(source)))
            elif source is not None:
                session.put(target, str(source))
        for variable, value in recorded.fills:
            session.fill(variable, value)

    def _generated(self, generation: Generation, operation: plans.Write, event: ProgramEvent) -> None:
        record, chunk = self._records[event.output], event.chunk
        assert chunk is not None
        if event.output == 0:
            self.recorder.gathered.wrote(record, chunk)
        else:
            record.add(chunk)
        if chunk.finish is None or record.usage is None:
            return
        self.recorder.gathered.usages.append(record.usage)
        self._session.put(operation.slots[event.output], record.text)
        if operation.thoughts:
            self._session.put(operation.thoughts[event.output], record.reasoning)
        several = generation.node.count > 1
        if several:
            self.calls.end(event.output)
        if all(each.usage is not None for each in self._records):
            try:
                generation.fill(self._records)
            except Exception:
                for slot in operation.slots:  # its text makes no value, so nobody reads it
                    self._session.texts.pop(slot, None)
                raise
        if not several:
            self.calls.end()

    def _fork(self, player: _Player, path: str) -> None:
        player.calls.start(path)
        player.recorder.gathered.begin_behind(self.recorder.gathered)
