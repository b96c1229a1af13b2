"""Programs: `@function`, and running them once, in batches, streaming, from threads or coroutines.

The face of what a program can do; arguments are fitted in calls.py, bodies run in bodies.py, batches in batches.py,
compiled runs in compiling/compiled.py.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

from palmette.lang.batches import Batch, run_all
from palmette.lang.bodies import Body
from palmette.lang.calls import Parameters, ProgramCall
from palmette.lang.compiling.compiled import Compilation, NoBackend
from palmette.lang.compiling.graph import Graph
from palmette.lang.compiling.recording import has_symbols
from palmette.lang.compiling.tracing import TracingState
from palmette.lang.errors import TraceError
from palmette.lang.loop import language_loop, run_on
from palmette.lang.state import ProgramState
from palmette.runtime.errors import InvalidRequest, Unsupported


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
        *,
        name: str | None = None,
    ) -> None:
        if not callable(func) or inspect.isclass(func):
            raise InvalidRequest(f"A program is made of a function, not of {func!r}.", param="func")
        functools.update_wrapper(self, func)
        self.func = func
        self._name = str(name or getattr(func, "__name__", repr(func)))
        self.bound = dict(bound or {})
        self.is_async = inspect.iscoroutinefunction(func)
        self._compilation = compilation
        self._parameters = Parameters(func, self.name)
        self._body = Body(func, self.name, is_async=self.is_async)

    @property
    def name(self) -> str:
        """The function's name."""
        return self._name

    @property
    def arg_names(self) -> list[str]:
        """The program's own parameters, behind its state."""
        return self._parameters.names

    def bind(self, **kwargs: Any) -> Program:
        """The same program with some arguments given."""
        self._parameters.check_bound(kwargs)
        return Program(self.func, {**self.bound, **kwargs}, self._compilation, name=self.name)

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
        state = self._state(call, streams=stream)
        if stream:
            state.body_runs_elsewhere()
            if self.is_async:
                work = self._body.arun(state, call, quiet=True)
                state.keep(asyncio.run_coroutine_threadsafe(work, language_loop()))
            else:
                self._body.run_beside(state, call)
        elif self.is_async:
            run_on(language_loop(), self._body.arun(state, call))
        else:
            self._body.run(state, call)
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
        state = self._state(call, streams=stream)
        if stream:
            state.body_runs_elsewhere()
            if self.is_async:
                state.keep(asyncio.ensure_future(self._body.arun(state, call, quiet=True)))
            else:
                self._body.run_beside(state, call)
            return state
        if self.is_async:
            await self._body.arun(state, call)
        else:
            await self._body.run_in_thread(state, call)
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
        reorder: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Run the program once for each item (its arguments, as a mapping or a sequence); states in order, as a Batch.

        An item that fails fails alone: reading its state raises, `state.error()` says why. `num_threads` bounds the
        threads that run program code, or the coroutines that run at once. With `generator_style`, an iterator that
        gives each state when it is done. What the items begin with is kept in the cache until the batch is over;
        `shared` of the result says what that was.

        `reorder`: texts that stand in `any_order` are put so that more items begin alike. To know them, each item's
        code is run once more beforehand, without a model, as far as it doesn't need one; `reordered` of the result
        says what came of it.
        """
        calls = self._parameters.calls(self.bound, batch, kwargs, backend, namespace, deadline)
        lazy = self._compilation is not None
        running = run_all(
            self._body, calls, self._state, num_threads, lazy=lazy, progress_bar=progress_bar, reorder=reorder
        )
        return running if generator_style else Batch(running)

    def trace(self, *args: Any, **kwargs: Any) -> Graph:
        """The program's graph for these arguments: what it appends and computes, and what waits for what. Nothing is
        computed. Takes the arguments of `run`. Raises TraceError, naming the line, where the program hangs on generated
        text in a way that no graph can show; it still runs as it is."""
        tracer = self._body.traced(self._call(args, kwargs, NoBackend(), "", None))
        return Graph.of(self.name, tracer.plan, tracer.names)

    def compile(self, *, or_interpret: bool = False, returns: bool = False, critical_first: bool = False) -> Program:
        """The same program, whose runs go to the runtime as one request, each traced with its own arguments; tokens
        are those of `run`. A run that can't be traced raises TraceError; with `or_interpret` a program whose first run
        can't be is run as it is. `returns`: a later run goes on from where one ended, so its end is worth keeping.
        `critical_first`: what a program waits for goes before what runs beside it; that ends a lone program sooner, and
        takes forks of one state apart, so that a small cache hits less."""
        compilation = Compilation(or_interpret, returns, critical_first)
        return Program(self.func, self.bound, compilation, name=self.name)

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

    def _call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], backend: Any, namespace: str, deadline: float | None
    ) -> ProgramCall:
        return self._parameters.call(self.bound, args, kwargs, backend, namespace, deadline)

    def _state(self, call: ProgramCall, *, streams: bool = False) -> ProgramState:
        compilation = self._compilation
        if compilation is not None and compilation.wanted(lambda: self._body.traced(call)):
            return compilation.state(call.backend, call.sampling, call.namespace, streams=streams)
        return ProgramState(call.backend, call.sampling, namespace=call.namespace, streams=streams)


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
