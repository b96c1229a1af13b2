"""The engine's step where planning overlaps execution: step n + 1 is planned and handed over while step n runs.

Between two calls of `step` one step is in flight. A call plans the next one as if that had been committed (a row's
token may still be the one that it draws), hands it to the worker's thread, waits for the step in flight, commits it,
and only then says what the next one draws: by then every token before is known. What leaves meanwhile is given back
when the last step that names it has finished (flights.py). A row of an output that turns out to have ended is computed
for nothing, and its result dropped. Outputs under a grammar are planned ahead, too: their masks are made when the token
before is known, and where that forces others nothing is drawn from the row; they are computed in the step behind.
Chosen by engine.py for EngineConfig.overlap; exact like core.py's step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from palmette.runtime.messages.replies import Reply
from palmette.runtime.plan import SamplePlan, StepResult
from palmette.runtime.scheduler.batch import StepBatch
from palmette.runtime.scheduler.chunking import step_load
from palmette.runtime.scheduler.core import EngineCore
from palmette.runtime.scheduler.sampling import Pending
from palmette.runtime.scheduler.sequence import Sequence

T = TypeVar("T")


class InOrder(Protocol):
    """Runs calls elsewhere, one after the other."""

    def submit(self, call: Callable[..., T], /, *args: Any) -> Pending[T]: ...


@dataclass(slots=True)
class Flight:
    """A step in the worker's hands. `drawn` comes once it is known what to draw."""

    batch: StepBatch
    forward: Pending[Any]
    drawn: Pending[StepResult] | None = None

    def result(self) -> StepResult:
        assert self.drawn is not None
        return self.drawn.result()

    def wait(self) -> None:
        (self.drawn or self.forward).exception()


class OverlappingCore(EngineCore):
    """`thread`: where the worker's calls are made; one of its own by default."""

    def __init__(self, *args: Any, thread: InOrder | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._thread: InOrder = thread or ThreadPoolExecutor(1, thread_name_prefix="palmette-worker")
        self._flights: deque[Flight] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self._flights) or super().has_work

    def step(self) -> list[Reply]:
        """Plans a step and commits the one before. Returns that one's replies."""
        running = self._flights[0] if self._flights else None
        self._dispatch(running)
        if running is not None:
            self._land(running)
            if not self._flights:  # nothing could be planned before it was committed
                self._dispatch(None)
        if self._flights:
            self._draw(self._flights[-1])
        return self._emit()

    def _dispatch(self, before: Flight | None) -> None:
        """Plans the next step and has it begin, where there is anything to do."""
        batch = StepBatch(self._steps)
        try:
            with self._tally.time("plan"):
                self._take_compiled(batch)
                if before is None:
                    self._planner.plan(batch)
                elif not self._planner.plan_ahead(batch):
                    return
                if not batch.rows:
                    return
                plan = batch.step_plan(self._page_size, before.batch if before is not None else None)
                self._steps += 1
                self._running.dispatched(batch)
                self._flights.append(Flight(batch, self._thread.submit(self._worker.forward, plan)))
        except Exception as fault:
            self._contain(batch, fault)
            self._abandon(batch)

    def _draw(self, flight: Flight) -> None:
        """Says what the step draws."""
        try:
            flight.batch.settle(self._ended(flight.batch))
            with self._tally.time("plan"):
                plan = flight.batch.sample_plan()
                flight.drawn = self._thread.submit(self._sample, flight.forward, plan)
        except Exception as fault:
            self._contain(flight.batch, fault)
            self._abandon(flight.batch)

    def _sample(self, forward: Pending[Any], plan: SamplePlan) -> StepResult:
        return self._worker.sample(forward.result(), plan)

    def _land(self, flight: Flight) -> None:
        """Waits for the step, and makes what it computed real."""
        batch = flight.batch
        try:
            batch.over = self._ended(batch)
            with self._tally.time("execute"):
                flight.wait()
            self._flights.popleft()
            self._running.finished(batch)
            result = flight.result()
            if self._step_time is not None:
                self._step_time.observe(step_load(batch.rows), result.forward_seconds + result.sample_seconds)
            self._commit(batch, result)
        except Exception as fault:
            self._contain(batch, fault)
            self._abandon(batch)

    def _ended(self, batch: StepBatch) -> frozenset[Sequence]:
        return frozenset(row.sequence for row in batch.rows if row.sequence not in self._running)

    def _abandon(self, batch: StepBatch) -> None:
        """The step broke on this side; once the worker has let go of it nothing is in its use."""
        for flight in [flight for flight in self._flights if flight.batch is batch]:
            flight.wait()
            self._flights.remove(flight)
        self._running.finished(batch)

    def _settle(self) -> None:
        for flight in self._flights:
            flight.wait()
