"""One run of a compiled program: the request, where its events go, and the values that they bring.

Started once the program is traced (compiled.py). Its tracks' states are filled by players (playing.py).
"""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import aclosing
from typing import Any, Protocol

from palmette.lang.backends.base import ProgramRun
from palmette.lang.compiling.playing import NotWritten, Player
from palmette.lang.compiling.recording import MISSING, Ambiguous, Recorded, Recorder, has_symbols
from palmette.lang.compiling.symbols import Symbol
from palmette.lang.compiling.tracing import TracingState
from palmette.lang.errors import Location, ProgramError
from palmette.lang.interpreter.variables import Variable
from palmette.lang.loop import begin, finished, language_loop
from palmette.lang.threads import program_threads
from palmette.runtime.errors import Aborted
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.programs import CallResult, Operation, ProgramEvent, RunProgram, Scalar, Value, resolved


class RunsPrograms(Protocol):
    """A backend that takes whole programs."""

    async def run_program(self, request: RunProgram) -> ProgramRun: ...


class Session:
    """One run: the request, and where its events go."""

    def __init__(self, state: TracingState, backend: Any, namespace: str, options: dict[str, Any]) -> None:
        self._state = state
        self._backend: RunsPrograms = backend
        self._loop: asyncio.AbstractEventLoop = backend.loop
        self._tracer = state.tracer
        self._request = RunProgram(plan=self._tracer.plan, namespace=namespace, **options)
        self.players = [Player(recorder, self) for recorder in self._tracer.tracks]
        self._task: asyncio.Task[None] | None = None
        self._run: ProgramRun | None = None
        self._ended = False
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

        def go() -> None:
            self._task = begin(self._loop, self._go())

        try:
            self._loop.call_soon_threadsafe(go)
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
                    if event.over:
                        self._end(None)  # what follows ends the connection
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
        if self._ended:
            return
        self._ended = True
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
        """The program's function, in a thread of its own, or on the language's loop where it is a coroutine's; the
        runtime waits for what it gives."""
        assert event.arguments is not None
        arguments = event.arguments

        def work() -> None:
            try:
                text, failure = _text(finished(recorded.function(*arguments))), None
            except Exception as cause:
                text, failure = "", cause
            self._loop.call_soon_threadsafe(self._called, recorded, event, text, failure)

        async def awaited() -> None:
            try:
                text, failure = _text(await recorded.function(*arguments)), None
            except Exception as cause:
                text, failure = "", cause
            if language_loop() is self._loop:
                self._called(recorded, event, text, failure)
            else:
                self._loop.call_soon_threadsafe(self._called, recorded, event, text, failure)

        if not inspect.iscoroutinefunction(recorded.function):
            program_threads.submit(work).hurry()
        elif (loop := language_loop()) is self._loop:
            begin(loop, awaited())
        else:
            loop.call_soon_threadsafe(lambda: begin(loop, awaited()))

    def _called(self, recorded: Recorded, event: ProgramEvent, text: str, failure: Exception | None) -> None:
        """What the function gave, or why it gave nothing: into the variables, and to the runtime."""
        operation = recorded.operation
        assert isinstance(operation, plans.Call)
        said = None if failure is None else f"{type(failure).__name__}: {failure}"
        result = CallResult(track=event.track, operation=event.operation, text=text, error=said)
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
            self.put(operation.slot, text)
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


def _text(given: Any) -> str:
    return given if isinstance(given, str) else str(given)
