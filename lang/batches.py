"""Many runs of one program: their bodies in threads or on the loop, so many at once; what they begin with is kept in
the cache; and, where that is asked for, texts in any order are put so that more of them begin alike.

Program.run_batch is the only caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from palmette.lang.bodies import Body
from palmette.lang.calls import ProgramCall
from palmette.lang.compiling.recording import has_symbols
from palmette.lang.errors import Location
from palmette.lang.loop import language_loop
from palmette.lang.ordering import Collected, Ordering, Reordered
from palmette.lang.sharing import SharedPrefix, Warmed
from palmette.lang.state import ProgramState
from palmette.lang.threads import PROGRAM_THREADS
from palmette.runtime.errors import InvalidRequest

IN_FLIGHT = 256
"""States of one batch that are open at once; threads run program code only, so there are fewer of them."""

COROUTINES = 1024
"""Coroutine programs of one batch that run at once, where nothing says otherwise: they need no threads."""


class Batch(list[ProgramState]):
    """The states of a batch, in the order of its items.

    `shared`: what they all began with, where a cache kept it for them; `reordered`: what `reorder=True` did.
    """

    def __init__(self, running: RunningBatch) -> None:
        super().__init__(running)
        self.shared: Warmed | None = running.shared
        self.reordered: Reordered | None = running.reordered


class RunningBatch(Iterator[ProgramState]):
    """The states of a batch, each as it is done, in order. Dropping or closing it stops those that still run.

    `shared` and `reordered` as a Batch has them; `shared` is known once the first programs have begun.
    """

    def __init__(self, states: Iterator[ProgramState], prefix: SharedPrefix | None, order: Ordering | None) -> None:
        self._states = states
        self._prefix = prefix
        self.reordered: Reordered | None = None if order is None else order.report

    @property
    def shared(self) -> Warmed | None:
        return None if self._prefix is None else self._prefix.report.result()

    def __next__(self) -> ProgramState:
        return next(self._states)

    def close(self) -> None:
        self._states.close()  # type: ignore[attr-defined]


def run_all(
    body: Body,
    calls: Sequence[ProgramCall],
    new_state: Callable[[ProgramCall], ProgramState],
    num_threads: int | Literal["auto"],
    *,
    lazy: bool,
    progress_bar: bool,
    reorder: bool,
) -> RunningBatch:
    """Start them. `lazy`: bodies are over at once and what they compute runs on, as a compiled program's."""
    threads = thread_count(num_threads, len(calls), COROUTINES if body.is_async else PROGRAM_THREADS)
    order = _order(body, calls) if reorder else None
    states = [new_state(call) for call in calls]
    for state in states:
        state.order_by(order)
    prefix = _prefix(states, calls)
    run = _on_loop if body.is_async else functools.partial(_in_threads, lazy=lazy)
    progress = _Progress(body.name, len(states)) if progress_bar else None
    return RunningBatch(_results(states, lambda: run(body, states, calls, threads), prefix, progress), prefix, order)


def _results(
    states: Sequence[ProgramState],
    start: Callable[[], Callable[[], object]],
    prefix: SharedPrefix | None,
    progress: _Progress | None,
) -> Iterator[ProgramState]:
    finished = False
    with progress.display if progress is not None else nullcontext():
        for state in states:
            if progress is not None:
                state.on_done(progress.advance)
        stop = start()
        try:
            for state in states:
                state.wait_done()
                yield state
            finished = True
        finally:
            if not finished:  # interrupted, or the iterator was dropped
                cause = KeyboardInterrupt("the batch was stopped")
                for state in states:
                    state.abandon(cause, Location("?", 0, "?"), "run_batch")
            stop()
            if prefix is not None:
                prefix.release()


def _prefix(states: Sequence[ProgramState], calls: Sequence[ProgramCall]) -> SharedPrefix | None:
    """Watches how the states begin, where their backend has a cache that can be told what to keep."""
    backend = calls[0].backend if calls else None
    if len(calls) < 2 or not callable(getattr(backend, "run_program", None)):
        return None
    assert backend is not None
    prefix = SharedPrefix(backend, len(calls), calls[0].namespace)
    for state in states:
        state.on_begin(prefix.saw)
    return prefix


def _order(body: Body, calls: Sequence[ProgramCall]) -> Ordering:
    """Of what the programs write in any order, as far as they can be run without a model."""
    collected = Collected()
    for call in calls:
        with contextlib.suppress(Exception):  # it hangs on the model from there, or fails; its run says so
            body.traced(call, collected)
    return Ordering([group for group in collected.groups if not has_symbols(group)])


def _in_threads(
    body: Body, states: Sequence[ProgramState], calls: Sequence[ProgramCall], threads: int, *, lazy: bool
) -> Callable[[], object]:
    # Where a body is over at once, what bounds them is what would have bounded their threads.
    room = threading.Semaphore(threads if lazy else max(threads, IN_FLIGHT))

    def work(state: ProgramState, call: ProgramCall) -> None:
        room.acquire()
        state.on_done(room.release)
        body.run(state, call, quiet=True)

    pool = ThreadPoolExecutor(threads, thread_name_prefix="palmette-program")
    for state, call in zip(states, calls, strict=True):
        pool.submit(work, state, call)
    return functools.partial(pool.shutdown, wait=False, cancel_futures=True)


def _on_loop(
    body: Body, states: Sequence[ProgramState], calls: Sequence[ProgramCall], threads: int
) -> Callable[[], object]:
    async def one(room: asyncio.Semaphore, state: ProgramState, call: ProgramCall) -> None:
        async with room:
            await body.arun(state, call, quiet=True)
            await state.await_done()

    async def every() -> None:
        room = asyncio.Semaphore(threads)
        await asyncio.gather(*(one(room, state, call) for state, call in zip(states, calls, strict=True)))

    running: Future[None] = asyncio.run_coroutine_threadsafe(every(), language_loop())
    return running.cancel


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


def thread_count(num_threads: int | str, items: int, auto: int) -> int:
    """How many program bodies of a batch run at once. Raises InvalidRequest."""
    if num_threads == "auto":
        num_threads = max(auto, 8 * (os.cpu_count() or 1))
    if not isinstance(num_threads, int) or isinstance(num_threads, bool) or num_threads < 1:
        raise InvalidRequest(
            f"num_threads={num_threads!r} is not a whole number of 1 or more, or 'auto'.", param="num_threads"
        )
    return max(1, min(num_threads, items))
