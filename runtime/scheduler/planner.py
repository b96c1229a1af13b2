"""Decides what the next step computes: who decodes, which chunks are prefilled, who is admitted, who must give way.

Only reserves pages and slots; nothing it does makes tokens or KV real. Called by the core, once a step: when all steps
before are committed (`plan`), or while one runs (`plan_ahead`).
"""

from __future__ import annotations

from collections.abc import Callable

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.pages import OutOfPages
from palmette.runtime.messages.tokens import TOKEN_BYTES
from palmette.runtime.scheduler.admission import Admission
from palmette.runtime.scheduler.batch import Row, StepBatch
from palmette.runtime.scheduler.chunking import PrefillBudget
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.retraction import SLACK_SHARE, AdmissionHold, growth_victim, preempted
from palmette.runtime.scheduler.running import RunningSet
from palmette.runtime.scheduler.sequence import Sequence


class Planner:
    """Decodes go first and are never cut; prefills share what `budget` leaves of the step.

    `preempts`: a waiting sequence may displace running ones of lower priority.
    """

    def __init__(
        self,
        cache: RadixCache,
        running: RunningSet,
        queue: WaitingQueue,
        admission: Admission,
        budget: PrefillBudget,
        *,
        preempts: bool,
        clock: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._running = running
        self._queue = queue
        self._admission = admission
        self._budget = budget
        self._preempts = preempts
        self._clock = clock
        self._hold = AdmissionHold(int(cache.pages * SLACK_SHARE))
        self.retractions = 0
        self.preemptions = 0

    def plan(self, batch: StepBatch) -> None:
        """Fills `batch`. Where it raises, `batch.subject` says over whom."""
        if self._preempts and self._queue:
            self._preempt(batch)
        running, page_bytes = list(self._running), self._cache.page_size * TOKEN_BYTES
        for sequence in running:
            if len(sequence.tokens) > len(sequence.pages) * page_bytes and sequence.slot is not None:
                batch.subject = sequence
                self._grow(sequence)
        for sequence in running:
            if sequence.decoding and sequence.slot is not None:  # else it gave way
                batch.add(Row(sequence, sequence.computed, sequence.length))
        self._complete(batch)

    def plan_ahead(self, batch: StepBatch) -> bool:
        """Fills `batch` as if the step that runs had been committed, and had ended no output.

        False where somebody would have to give way: that can't be while a step uses their pages.
        """
        if self._preempts and self._queue and self._displaced(batch):
            return False
        for sequence in self._running:
            if sequence.drawing and not sequence.decodes_next:
                continue  # its last token is being drawn, which needs no page
            batch.subject = sequence
            missing = self._missing_pages(sequence)
            if missing > self._cache.available():
                return False
            if missing > 0:
                self._running.extend(sequence, self._cache.allocate(missing))
        for sequence in self._running:
            if sequence.decodes_next:
                batch.add(Row(sequence, sequence.planned, sequence.expected))
        self._complete(batch)
        return True

    def _complete(self, batch: StepBatch) -> None:
        if len(batch.rows) < len(self._running) or self._queue:
            self._add_prefills(batch)
        if batch.rows:
            batch.table_writes = self._running.take_table_writes()
        batch.subject = None

    def _add_prefills(self, batch: StepBatch) -> None:
        self._budget.begin(batch.rows)
        for sequence in self._running:
            if not sequence.decoding and sequence.planned < sequence.length:
                self._add_chunk(sequence, batch)
        if self._may_admit(batch):
            for sequence in self._admission.admit(self._running, batch):
                self._start(sequence)
                batch.admitted.append(sequence)
                self._add_chunk(sequence, batch)
                if not self._may_admit(batch):
                    break

    def _may_admit(self, batch: StepBatch) -> bool:
        running = self._running
        if not self._queue or running.full or self._budget.room(batch, 0) <= 0:
            return False
        if self._hold.active:
            self._hold.look(self._admission.room(running), len(running))
        return not self._hold.active

    def _add_chunk(self, sequence: Sequence, batch: StepBatch) -> None:
        start = sequence.planned
        room = self._budget.room(batch, start)
        if room > 0:
            row = Row(sequence, start, min(sequence.length, start + room))
            batch.add(row)
            self._budget.took(row)

    def _start(self, sequence: Sequence) -> None:
        self._running.start(sequence)
        if sequence.admitted is None:
            sequence.admitted = self._clock()

    def _grow(self, sequence: Sequence) -> None:
        """Pages for the positions of its newest tokens. Where they are not to be had others are retracted, or
        `sequence` itself; the first admitted one never is, so progress is always made."""
        missing = self._missing_pages(sequence)
        while True:
            try:
                pages = self._cache.allocate(missing)
            except OutOfPages:
                assert len(self._running) > 1, "one sequence always fits: intake and audit refused what can't"
                victim = growth_victim(self._running, self._cache.page_size)
                self._retract(victim)
                self._hold.begin()
                if victim is sequence:
                    return
            else:
                self._running.extend(sequence, pages)
                return

    def _missing_pages(self, sequence: Sequence) -> int:
        return -(-sequence.expected // self._cache.page_size) - len(sequence.pages)

    def _preempt(self, batch: StepBatch) -> None:
        for victim in self._displaced(batch):
            self._retract(victim)
            self.preemptions += 1

    def _displaced(self, batch: StepBatch) -> list[Sequence]:
        """Running sequences of lower priority to retract, where the first that waits has neither slot nor pages."""
        first = next(self._queue.candidates())
        running = self._running
        if all(sequence.priority >= first.priority for sequence in running):
            return []
        batch.subject = first
        missing = self._admission.pages_for(first) - self._admission.room(running)
        if missing <= 0 and not running.full:
            return []
        return preempted(running, first.priority, self._cache.page_size, pages=missing, slot=running.full)

    def _retract(self, sequence: Sequence) -> None:
        """Give up slot and pages; what was computed stays in the tree until it is evicted."""
        self._running.leave(sequence, keep_committed=True)
        sequence.retractions += 1
        self._queue.add(sequence)
        self.retractions += 1
