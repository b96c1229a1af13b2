"""Compiled programs: a traced program goes to its backend as one request, and the answer's events fill its states.

The states are those that the tracing made (tracing.py); each event takes the same way through them that an
interpreter's results take, so what is read afterwards is what a run without compiling gives. The run itself is in
session.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from palmette.lang.backends.base import Backend, BackendBranch
from palmette.lang.compiling.recording import Tracer
from palmette.lang.compiling.session import Session
from palmette.lang.compiling.tracing import TracingState
from palmette.lang.errors import TraceError
from palmette.lang.loop import language_loop
from palmette.lang.sampling import SamplingOptions
from palmette.runtime.errors import InternalError, Unsupported
from palmette.runtime.messages.requests import UNWATCHED_SECONDS


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

    def state(self, backend: Backend, sampling: SamplingOptions, namespace: str, *, streams: bool) -> TracingState:
        """The state of a run; `streams`: it is watched as it grows. Raises Unsupported for a backend that takes no
        programs."""
        if not callable(getattr(backend, "run_program", None)):
            raise Unsupported(
                f"The {backend.name} backend runs no compiled programs.",
                hint="Run the program as it is, or on an Engine, a Runtime or a RuntimeEndpoint.",
            )
        state = TracingState(backend, sampling, Tracer(), namespace=namespace)
        options = {**self._options, "reply_seconds": 0.0 if streams else UNWATCHED_SECONDS}
        state.on_traced = lambda traced: Session(traced, backend, namespace, options).start()
        return state
