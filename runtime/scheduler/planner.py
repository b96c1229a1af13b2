"""Decides what the next step computes: who decodes, which chunks are prefilled, who is admitted, who must give way.

Only reserves pages and slots; nothing it does makes tokens or KV real. Called by the core, once a step.
"""

from __future__ import annotations

from collections.abc import Callable

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.pages import OutOfPages
from palmette.runtime.scheduler.admission import Admission
from palmette.runtime.scheduler.batch import Row, StepBatch
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.running import RunningSet
from palmette.runtime.scheduler.sequence import Sequence


class Planner:
    """`step_tokens`: prefill is cut so that a step has no more tokens; decodes go first and are never cut."""

    def __init__(
        self,
        cache: RadixCache,
        running: RunningSet,
        queue: WaitingQueue,
        admission: Admission,
        *,
        step_tokens: int,
        clock: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._running = running
        self._queue = queue
        self._admission = admission
        self._step_tokens = step_tokens
        self._clock = clock
        self._held_at: int | None = None  # departures at the last retraction: nobody is admitted until there are more
        self.retractions = 0

    def plan(self, batch: StepBatch) -> None:
        """Fills `batch`. Where it raises, `batch.subject` says over whom."""
        for sequence in [s for s in self._running if s.decoding]:
            if sequence in self._running:
                batch.subject = sequence
                if self._grow(sequence):
                    batch.add(Row(sequence, sequence.computed, sequence.length))
        for sequence in self._running:
            if not sequence.decoding and batch.tokens < self._step_tokens:
                self._add_chunk(sequence, batch)
        if self._may_admit(batch):
            for sequence in self._admission.admit(self._running, batch):
                self._start(sequence)
                self._add_chunk(sequence, batch)
                if not self._may_admit(batch):
                    break
        batch.subject = None

    def _may_admit(self, batch: StepBatch) -> bool:
        held = self._running.departures == self._held_at
        return bool(self._queue) and not held and not self._running.full and batch.tokens < self._step_tokens

    def _add_chunk(self, sequence: Sequence, batch: StepBatch) -> None:
        end = min(sequence.length, sequence.computed + self._step_tokens - batch.tokens)
        batch.add(Row(sequence, sequence.computed, end))

    def _start(self, sequence: Sequence) -> None:
        self._running.start(sequence)
        if sequence.admitted is None:
            sequence.admitted = self._clock()

    def _grow(self, sequence: Sequence) -> bool:
        """A page for the next position. Where none is to be had the latest admitted sequences are retracted; the
        first admitted one never is, so progress is always made. False: `sequence` itself was retracted."""
        if sequence.computed < len(sequence.pages) * self._cache.page_size:
            return True
        while True:
            try:
                pages = self._cache.allocate(1)
            except OutOfPages:
                victim = self._running.latest
                assert len(self._running) > 1, "one sequence always fits: intake and audit refused what can't"
                self._retract(victim)
                if victim is sequence:
                    return False
            else:
                self._running.extend(sequence, pages)
                return True

    def _retract(self, sequence: Sequence) -> None:
        """Give up slot and pages; what was computed stays in the tree until it is evicted."""
        self._running.leave(sequence, keep_committed=True)
        self._held_at = self._running.departures
        self._queue.put_back(sequence)
        sequence.retractions += 1
        self.retractions += 1
