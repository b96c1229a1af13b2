"""Programs: `@function`, and running them once, in batches, streaming, from threads or coroutines."""

from __future__ import annotations

import asyncio
import difflib
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, overload

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from palmette.lang.backends.base import Backend
from palmette.lang.compiling import Compilation, NoBackend, refusing, without_waiting
from palmette.lang.default import resolve_backend
from palmette.lang.errors import Location, TraceError, caller, is_ours, raised_at
from palmette.lang.graph import Graph
from palmette.lang.loop import language_loop, run_on
from palmette.lang.recording import Tracer, has_symbols
from palmette.lang.sampling import SAMPLING_NAMES, SamplingOptions, check_seconds, derive_seed, options
from palmette.lang.sharing import SharedPrefix
from palmette.lang.state import ProgramState
from palmette.lang.threads import PROGRAM_THREADS, program_threads
from palmette.lang.tracing import TracingState
from palmette.runtime.errors import InvalidRequest, Unsupported

IN_FLIGHT = 256
"""States of one batch that are open at once; threads run program code only, so there are fewer of them."""

COROUTINES = 1024
"""Coroutine programs of one batch that run at once, where nothing says otherwise: they need no threads."""

_RUN_OPTIONS = frozenset(
    {"backend", "stream", "num_threads", "progress_bar", "generator_style", "namespace", "deadline"}
)


@dataclass(frozen=True, slots=True)
class _Call:
    """One run: arguments that fit the program's signature, the backend and the sampling defaults."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    backend: Backend
    sampling: SamplingOptions
    namespace: str
    where: Location  # the line that runs it
    deadline: float | None = None  # seconds from its start


class Program:
    """A function of a state, made by `@function`. Calling it is `run`.

    `run` and `run_batch` take the program's own arguments, and sampling options (`temperature`, `max_new_tokens`,
    `stop`, …) that hold for every gen that doesn't set its own. Where the program has a parameter of such a name, the
    name means the parameter.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        bound: Mapping[str, Any] | None = None,
        compilation: Compilation | None = None,
    ) -> None:
        self.func = func
        self.bound = dict(bound or {})
        self._compilation = compilation
        self.is_async = inspect.iscoroutinefunction(func)
        self._signature = inspect.signature(func)
        functools.update_wrapper(self, func)
        parameters = list(self._signature.parameters.values())
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or parameters[0].kind not in positional:
            raise InvalidRequest(
                f"{self.name} takes no state.",
                hint="A program's first parameter is its state: def f(s, ...).",
            )
        for parameter in parameters[1:]:
            if parameter.name in _RUN_OPTIONS:
                raise InvalidRequest(
                    f"{self.name} has a parameter {parameter.name!r}, which is an option of run.",
                    hint="Rename the parameter.",
                    param=parameter.name,
                )
        self.arg_names = [parameter.name for parameter in parameters[1:]]
        self._sampling_names = SAMPLING_NAMES - set(self.arg_names)  # the program's own parameters win

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self, "__name__", repr(self.func))

    def bind(self, **kwargs: Any) -> Program:
        """The same program with some arguments given."""
        for name in kwargs:
            if name not in self.arg_names:
                raise InvalidRequest(f"{self.name} has no parameter {name!r} to bind.", param=name)
        return Program(self.func, {**self.bound, **kwargs}, self._compilation)

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        return self.run(*args, **kwargs)

    def run(
        self,
        *args: Any,
        backend: Any = None,
        stream: bool = False,
        namespace: str = "",
        deadline: float | None = None,
        **kwargs: Any,
    ) -> ProgramState:
        """Run the program's body here and give its state; what it generates may still be on its way, and reading
        waits for it. With `stream` the body runs in a thread and the state comes at once. A program that is not over
        within `deadline` seconds fails with TimedOut.

        Raises what the body raises, TypeError for arguments that don't fit.
        """
        call = self._call(args, kwargs, backend, namespace, deadline)
        state = self._state(call)
        if stream:
            state.body_runs_elsewhere()
            if self.is_async:
                asyncio.run_coroutine_threadsafe(self._abody(state, call, quiet=True), language_loop())
            else:
                state.body_waits(program_threads.submit(lambda: self._body(state, call, quiet=True)))
        elif self.is_async:
            run_on(language_loop(), self._abody(state, call))
        else:
            self._body(state, call)
        if not stream and isinstance(state, TracingState) and has_symbols(state.ret_value):
            state.wait_done()  # the result is made of values to come
        return state

    async def arun(
        self,
        *args: Any,
        backend: Any = None,
        stream: bool = False,
        namespace: str = "",
        deadline: float | None = None,
        **kwargs: Any,
    ) -> ProgramState:
        """`run` for coroutines: the state comes complete (with `stream`, at once). A coroutine program runs on the
        caller's loop, another one in a thread. Raises what the body raises; a failed node raises where it is read."""
        call = self._call(args, kwargs, backend, namespace, deadline)
        state = self._state(call)
        if stream:
            state.body_runs_elsewhere()
            if self.is_async:
                task = asyncio.ensure_future(self._abody(state, call, quiet=True))
                state.keep(task)
            else:
                state.body_waits(program_threads.submit(lambda: self._body(state, call, quiet=True)))
            return state
        if self.is_async:
            await self._abody(state, call)
        else:
            await self._in_thread(state, call)
        await state.await_done()
        return state

    def run_batch(
        self,
        batch: Sequence[Mapping[str, Any] | Sequence[Any]],
        *,
        backend: Any = None,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        namespace: str = "",
        deadline: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the program once for each item (its arguments, as a mapping or a sequence); states in order.

        An item that fails fails alone: reading its state raises, `state.error()` says why. `num_threads` bounds the
        threads that run program code, or the coroutines that run at once. With `generator_style`, an iterator that
        gives each state when it is done.
        """
        calls = self._calls(batch, kwargs, backend, namespace, deadline)
        threads = _thread_count(num_threads, len(calls), COROUTINES if self.is_async else PROGRAM_THREADS)
        states = [self._state(call) for call in calls]
        results = self._batch(states, calls, threads, progress_bar)
        if self._compilation is not None and self._compilation.refused is None and len(calls) > 1:
            results = self._sharing(results, calls)
        return results if generator_style else list(results)

    def trace(self, *args: Any, **kwargs: Any) -> Graph:
        """The program's graph for these arguments: what it appends and computes, and what waits for what. Nothing is
        computed. Takes the arguments of `run`. Raises TraceError, naming the line, where the program hangs on generated
        text in a way that no graph can show; it still runs as it is."""
        tracer = self._traced(self._call(args, kwargs, NoBackend(), "", None))
        return Graph.of(self.name, tracer.plan, tracer.names)

    def compile(self, *, or_interpret: bool = False, returns: bool = False, critical_first: bool = False) -> Program:
        """The same program, whose runs go to the runtime as one request, each traced with its own arguments; tokens
        are those of `run`. A run that can't be traced raises TraceError; with `or_interpret` a program whose first run
        can't be is run as it is. `returns`: a later run goes on from where one ended, so its end is worth keeping.
        `critical_first`: what a program waits for goes before what runs beside it; that ends a lone program sooner, and
        takes forks of one state apart, so that a small cache hits less."""
        return Program(self.func, self.bound, Compilation(or_interpret, returns, critical_first))

    @property
    def not_compiled(self) -> TraceError | None:
        """Why a program compiled with `or_interpret` runs as it is, where it does."""
        return self._compilation.refused if self._compilation is not None else None

    def cache(self, *args: Any, **kwargs: Any) -> Any:
        raise Unsupported(
            f"{self.name}.cache(...) is not here.",
            hint="Leave it out: shared prefixes are kept without asking.",
        )

    def __repr__(self) -> str:
        return f"<palmette program {self.name}({', '.join(self.arg_names)})>"

    # Inside

    def _state(self, call: _Call) -> ProgramState:
        compilation = self._compilation
        if compilation is not None and compilation.wanted(lambda: self._traced(call)):
            return compilation.state(call.backend, call.sampling, call.namespace)
        return ProgramState(call.backend, call.sampling, namespace=call.namespace)

    def _traced(self, call: _Call) -> Tracer:
        """Run the function without a model. Raises what it raises, and TraceError."""
        state = TracingState(call.backend, call.sampling, Tracer(), namespace=call.namespace)
        try:
            with refusing(state):
                result = self.func(state, *call.args, **call.kwargs)
                state.ret_value = without_waiting(result) if self.is_async else result
            state.finish()
        except BaseException as cause:
            self._failed(state, cause, call)
            raise
        return state.tracer

    def _call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], backend: Any, namespace: str, deadline: float | None
    ) -> _Call:
        if deadline is not None:
            check_seconds("deadline", deadline)
        sampling = options({name: value for name, value in kwargs.items() if name in self._sampling_names})
        own = self.bound | {name: value for name, value in kwargs.items() if name not in self._sampling_names}
        try:
            self._signature.bind(None, *args, **own)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}{self._advice(args, own)}") from None
        return _Call(args, own, resolve_backend(backend), sampling, namespace, caller(), deadline)

    def _advice(self, args: tuple[Any, ...], own: dict[str, Any]) -> str:
        """What may have been meant by arguments that don't fit."""
        if any(isinstance(value, ProgramState) for value in (*args, *own.values())):
            return ". A program makes its own state; what takes this one is a plain function, without @function."
        known = sorted({*self.arg_names, *self._sampling_names, *_RUN_OPTIONS})
        for name in own:
            if name not in known and (near := difflib.get_close_matches(name, known, n=1, cutoff=0.8)):
                return f". Did you mean {near[0]!r} by {name!r}?"
        return ""

    def _calls(
        self, batch: Sequence[Any], kwargs: dict[str, Any], backend: Any, namespace: str, deadline: float | None
    ) -> list[_Call]:
        unknown = sorted(set(kwargs) - self._sampling_names)
        if unknown:
            given = {name: kwargs[name] for name in unknown}
            raise TypeError(f"run_batch() got an unexpected keyword argument {unknown[0]!r}{self._advice((), given)}")
        backend = resolve_backend(backend)
        calls = []
        for index, item in enumerate(batch):
            if isinstance(item, Mapping):
                args, own = (), dict(item)
            elif isinstance(item, Sequence) and not isinstance(item, str):
                args, own = tuple(item), {}
            else:
                raise InvalidRequest(
                    f"Batch item {index} is {item!r}.",
                    hint="Give a dict of arguments, or a list of them in order.",
                )
            sampling = dict(kwargs)
            if sampling.get("seed") is not None:
                sampling["seed"] = derive_seed(sampling["seed"], index)
            try:
                calls.append(self._call(args, own | sampling, backend, namespace, deadline))
            except TypeError as error:
                raise TypeError(f"batch item {index}: {error}") from None
        return calls

    def _body(self, state: ProgramState, call: _Call, *, quiet: bool = False) -> None:
        """The program in this thread. `quiet`: its exception is kept in the state instead of raised."""
        state.begin(call.deadline)
        try:
            with refusing(state):
                state.ret_value = self.func(state, *call.args, **call.kwargs)
            state.finish()
        except BaseException as cause:
            self._failed(state, cause, call)
            if quiet and isinstance(cause, Exception):
                return
            raise

    async def _abody(self, state: ProgramState, call: _Call, *, quiet: bool = False) -> None:
        state.begin(call.deadline)
        try:
            with refusing(state):
                state.ret_value = await self.func(state, *call.args, **call.kwargs)
            state.finish()
        except BaseException as cause:
            self._failed(state, cause, call)
            if quiet and isinstance(cause, Exception):
                return
            raise

    async def _in_thread(self, state: ProgramState, call: _Call) -> None:
        """The program in a thread of its pool, for a coroutine that waits; raises what it raises."""
        ended: Future[None] = Future()

        def work() -> None:
            try:
                self._body(state, call)
            except BaseException as cause:
                ended.set_exception(cause)
            else:
                ended.set_result(None)

        program_threads.submit(work)
        await asyncio.wrap_future(ended)

    def _failed(self, state: ProgramState, cause: BaseException, call: _Call) -> None:
        code = self.func.__code__ if hasattr(self.func, "__code__") else None
        start = call.where  # of an agent's own program, too
        if code is not None and not is_ours(code.co_filename):
            start = Location(code.co_filename, code.co_firstlineno, self.name)
        state.abandon(cause, raised_at(cause.__traceback__) or start, "the program raised")

    def _batch(
        self, states: list[ProgramState], calls: list[_Call], threads: int, progress_bar: bool
    ) -> Iterator[ProgramState]:
        progress = _Progress(self.name, len(states)) if progress_bar else None
        run = self._batch_on_loop if self.is_async else self._batch_in_threads
        finished = False
        with progress.display if progress is not None else nullcontext():
            for state in states:
                if progress is not None:
                    state.on_done(progress.advance)
            stop = run(states, calls, threads)
            try:
                for state in states:
                    state.wait_done()
                    yield state
                finished = True
            finally:
                if not finished:  # interrupted, or the iterator was dropped
                    cause = KeyboardInterrupt("the batch was stopped")
                    for state in states:
                        state.abandon(cause, Location("?", 0, self.name), "run_batch")
                stop()

    def _sharing(self, results: Iterator[ProgramState], calls: list[_Call]) -> Iterator[ProgramState]:
        """A compiled batch, while what its programs begin with is kept in the cache."""
        samples = {0: calls[0], len(calls) // 2: calls[len(calls) // 2], len(calls) - 1: calls[-1]}
        try:
            traced = [self._traced(call).plan for call in samples.values()]
        except Exception:  # the program's own, or what it can't do: its run says so
            yield from results
            return
        shared = SharedPrefix(calls[0].backend, traced, calls[0].namespace)
        try:
            yield from results
        finally:
            shared.release()

    def _batch_in_threads(self, states: list[ProgramState], calls: list[_Call], threads: int) -> Callable[[], None]:
        # A compiled program's body is over at once, so what bounds them is what would have bounded their threads.
        room = threading.Semaphore(threads if self._compilation is not None else max(threads, IN_FLIGHT))

        def work(state: ProgramState, call: _Call) -> None:
            room.acquire()
            state.on_done(room.release)
            self._body(state, call, quiet=True)

        pool = ThreadPoolExecutor(threads, thread_name_prefix="palmette-program")
        for state, call in zip(states, calls, strict=True):
            pool.submit(work, state, call)
        return functools.partial(pool.shutdown, wait=False, cancel_futures=True)

    def _batch_on_loop(self, states: list[ProgramState], calls: list[_Call], threads: int) -> Callable[[], None]:
        async def one(room: asyncio.Semaphore, state: ProgramState, call: _Call) -> None:
            async with room:
                await self._abody(state, call, quiet=True)
                await state.await_done()

        async def every() -> None:
            room = asyncio.Semaphore(threads)
            await asyncio.gather(*(one(room, state, call) for state, call in zip(states, calls, strict=True)))

        running: Future[None] = asyncio.run_coroutine_threadsafe(every(), language_loop())

        def stop() -> None:
            running.cancel()

        return stop


class _Progress:
    """A bar that counts finished programs; advanced from any thread."""

    def __init__(self, name: str, total: int) -> None:
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            transient=False,
        )
        self.display: AbstractContextManager[Any] = progress
        self._progress = progress
        self._task = progress.add_task(name, total=total)

    def advance(self) -> None:
        self._progress.advance(self._task)


@overload
def function(func: Callable[..., Any]) -> Program: ...


@overload
def function(*, num_api_spec_tokens: int | None = None) -> Callable[[Callable[..., Any]], Program]: ...


def function(func: Callable[..., Any] | None = None, *, num_api_spec_tokens: int | None = None) -> Any:
    """Make a Program of a function whose first parameter is the state. `async def` functions may be programs too.

        @function
        def answer(s, question):
            s += question + gen("answer")

    `num_api_spec_tokens` is refused; `OpenAI(…, spec_tokens=…)` has what it was for.
    """
    if num_api_spec_tokens is not None:
        raise Unsupported(
            f"num_api_spec_tokens={num_api_spec_tokens!r} is not built yet.",
            hint="Leave it out: it is for APIs that bill by call, and a local engine doesn't.",
            param="num_api_spec_tokens",
        )
    return Program(func) if func is not None else Program


def _thread_count(num_threads: int | str, items: int, auto: int) -> int:
    """How many program bodies of a batch run at once."""
    if num_threads == "auto":
        num_threads = max(auto, 8 * (os.cpu_count() or 1))
    if not isinstance(num_threads, int) or isinstance(num_threads, bool) or num_threads < 1:
        raise InvalidRequest(
            f"num_threads={num_threads!r} is not a whole number of 1 or more, or 'auto'.", param="num_threads"
        )
    return max(1, min(num_threads, items))
