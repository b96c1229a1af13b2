"""What a step draws, planned beside the model where that takes a while: masks of many outputs under grammars.

One thread that plans while the model's threads wait is a core that does nothing; so masks are filled while those
compute, by whichever core is free. Called by the core, once a step.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from palmette.runtime.plan import SamplePlan
from palmette.runtime.scheduler.batch import StepBatch

MANY = 4  # samples under grammars, from which on handing them over costs less than it saves

R_co = TypeVar("R_co", covariant=True)


class Pending(Protocol[R_co]):
    """A call that was handed over. `result` waits for it and raises what it raised; `exception` only waits."""

    def result(self) -> R_co: ...

    def exception(self) -> BaseException | None: ...


class _Made:
    """A plan that is there already."""

    def __init__(self, plan: SamplePlan) -> None:
        self._plan = plan

    def result(self) -> SamplePlan:
        return self._plan

    def exception(self) -> None:
        return None


class SamplePlanning:
    """Has a thread of its own from the first step that needs it."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, batch: StepBatch) -> Pending[SamplePlan]:
        """Until it is there nobody may change the batch's sequences."""
        if batch.constrained < MANY:
            return _Made(batch.sample_plan())
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="palmette-masks")
        return self._thread.submit(batch.sample_plan)
