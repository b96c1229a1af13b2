"""How many prefill tokens a step may take: as many as keep running outputs within a stated inter-token latency.

Knows rows, and a step-time model where there is one; nothing of queues or pages. Called by the planner and the core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.scheduler.batch import Row, StepBatch

LEAST_PREFILL = 16  # tokens a step, whatever the target, so that a prefill always ends


class StepTime(Protocol):
    """What is needed of runtime/step_time.py."""

    def seconds(self, load: StepLoad) -> float: ...

    def observe(self, load: StepLoad, seconds: float) -> None: ...

    def tokens_within(self, seconds: float, base: StepLoad, context: int) -> int: ...


class PrefillBudget:
    """Of one step at a time. `itl_target`: seconds; a request's own target for a token counts where it is less."""

    def __init__(self, step_tokens: int, itl_target: float | None, step_time: StepTime | None) -> None:
        self._step_tokens = step_tokens
        self._itl_target = itl_target
        self._step_time = step_time
        self._load = StepLoad()
        self._within: float | None = None
        self._prefilled = 0

    def begin(self, decodes: Iterable[Row]) -> None:
        """A step with these decodes, and prefills to come."""
        self._prefilled = 0
        self._within = None
        if self._step_time is None:
            return
        rows = list(decodes)
        targets = [row.sequence.targets.tpot for row in rows]
        stated = [target for target in (*targets, self._itl_target) if target is not None]
        if rows and stated:
            self._within = min(stated)
            self._load = step_load(rows)

    def room(self, batch: StepBatch, context: int) -> int:
        """Tokens that one more row, behind `context` tokens, may compute in this step."""
        most = self._step_tokens - batch.tokens
        if self._within is None or most <= 0:
            return max(0, most)
        assert self._step_time is not None
        within = self._step_time.tokens_within(self._within, self._load, context)
        return min(most, max(within, LEAST_PREFILL - self._prefilled))

    def took(self, row: Row) -> None:
        self._prefilled += row.end - row.start
        if self._within is not None:
            self._load = self._load.plus(row.end - row.start, row.start)


def step_load(rows: Iterable[Row]) -> StepLoad:
    """What a step of these rows adds up to."""
    count = tokens = pairs = positions = logits = 0
    for row in rows:
        start, new = row.start, row.end - row.start
        count += 1
        tokens += new
        pairs += new * start + new * (new + 1) // 2
        positions += start
        logits += row.samples + len(row.scored)
    return StepLoad(count, tokens, pairs, positions, logits)
