"""A program's function, run on a state: in this thread, as a coroutine, in a thread of the pool, or without a model.

What it raises fails its state at the program's line. Program (program.py) and batches (batches.py) are its callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from palmette.lang.calls import ProgramCall
from palmette.lang.compiling.recording import Tracer, refusal
from palmette.lang.compiling.tracing import TracingState
from palmette.lang.errors import Location, TraceError, is_ours, located, raised_at, recurs_at
from palmette.lang.nesting import endless, enter, leave
from palmette.lang.ordering import Arranges
from palmette.lang.state import ProgramState
from palmette.lang.threads import program_threads
from palmette.runtime.errors import PalmetteError


class Body:
    """`func`, as the program `name`."""

    def __init__(self, func: Callable[..., Any], name: str, *, is_async: bool) -> None:
        self.func = func
        self.name = name
        self.is_async = is_async

    def run(self, state: ProgramState, call: ProgramCall, *, quiet: bool = False) -> None:
        """In this thread. `quiet`: its exception is kept in the state instead of raised."""
        state.begin(call.deadline)
        try:
            with _Body(state, call.chain):
                state.ret_value = self.func(state, *call.args, **call.kwargs)
            state.finish()
        except BaseException as cause:
            self._end(state, cause, call, quiet=quiet)

    async def arun(self, state: ProgramState, call: ProgramCall, *, quiet: bool = False) -> None:
        """A coroutine program, in this task."""
        state.begin(call.deadline)
        try:
            with _Body(state, call.chain):
                state.ret_value = await self.func(state, *call.args, **call.kwargs)
            state.finish()
        except BaseException as cause:
            self._end(state, cause, call, quiet=quiet)

    async def run_in_thread(self, state: ProgramState, call: ProgramCall) -> None:
        """In a thread of its pool, for a coroutine that waits; raises what it raises."""
        ended: Future[None] = Future()

        def work() -> None:
            try:
                self.run(state, call)
            except BaseException as cause:
                ended.set_exception(cause)
            else:
                ended.set_result(None)

        program_threads.submit(work)
        await asyncio.wrap_future(ended)

    def run_beside(self, state: ProgramState, call: ProgramCall) -> None:
        """In a thread of the pool, beside the caller. Its exception is kept in the state."""
        state.body_waits(program_threads.submit(lambda: self.run(state, call, quiet=True)))

    def traced(self, call: ProgramCall, ordering: Arranges | None = None) -> Tracer:
        """Run it without a model. Raises what it raises, and TraceError."""
        state = TracingState(call.backend, call.sampling, Tracer(), namespace=call.namespace)
        state.order_by(ordering)
        try:
            with _Body(state, call.chain):
                result = self.func(state, *call.args, **call.kwargs)
                state.ret_value = _without_waiting(result) if self.is_async else result
            state.finish()
        except BaseException as cause:
            self._failed(state, cause, call)
            raise
        return state.tracer

    def _end(self, state: ProgramState, cause: BaseException, call: ProgramCall, *, quiet: bool) -> None:
        """What is being handled ended the body: raised again, one of ours with its line, unless `quiet`."""
        where = self._failed(state, cause, call)
        if quiet and isinstance(cause, Exception):
            return
        if isinstance(cause, PalmetteError):
            raise located(cause, where) from cause.__cause__
        raise

    def _failed(self, state: ProgramState, cause: BaseException, call: ProgramCall) -> Location:
        """Where."""
        code = self.func.__code__ if hasattr(self.func, "__code__") else None
        start = call.where  # of an agent's own program, too
        if code is not None and not is_ours(code.co_filename):
            start = Location(code.co_filename, code.co_firstlineno, self.name)
        where = raised_at(cause.__traceback__) or start
        state.abandon(cause, where, "the program raised")
        return where


class _Body:
    """The body of a program, in its chain: a recursion without an end is said to be one, and what a body that is traced
    raises because a value isn't there becomes a TraceError."""

    __slots__ = ("_before", "_chain", "_state")

    def __init__(self, state: object, chain: tuple[str, ...]) -> None:
        self._state, self._chain = state, chain

    def __enter__(self) -> None:
        self._before = enter(self._chain)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        leave(self._before)
        if isinstance(error, RecursionError):
            where = recurs_at(error.__traceback__)
            if where is not None:
                what = f"{where.function}() calls itself, or others that call it, too often"
                raise endless(what, where, "call") from error
        elif isinstance(error, Exception) and isinstance(self._state, TracingState):
            said = refusal(error, self._state.tracer, raised_at(error.__traceback__))
            if said is not error:
                raise said from error


def _without_waiting(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing but its state. Raises TraceError where it does."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    finally:
        work.close()
    raise TraceError("The program waits for something that is not its state, so it can't be traced beforehand.")
