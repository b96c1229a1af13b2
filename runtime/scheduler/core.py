"""The engine's step: receive → plan → execute → commit → emit. Owns every sequence from arrival to its last reply.

`plan` only reserves (pages, slots, leases); `commit` makes tokens and KV real; a failure releases what was reserved
and fails the requests of that step, nobody else. Runs in one thread; who drives it (a thread, a process) is the
link's matter. Knows nothing of text, HTTP or torch.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.dump import to_message
from palmette.radix_cache.invariants import Violation, check_invariants
from palmette.radix_cache.oracle import ReuseOracle
from palmette.radix_cache.pages import OutOfPages, PageId
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import Aborted, InternalError, PalmetteError
from palmette.runtime.messages.replies import (
    Counters,
    EngineReady,
    Failed,
    Finish,
    FinishReason,
    Flushed,
    Generated,
    Reply,
    Scored,
    TokenLogprob,
    TreeDump,
    Usage,
)
from palmette.runtime.messages.requests import Abort, DumpTree, FlushCache, Generate, Request, Score, Shutdown
from palmette.runtime.messages.tokens import pack
from palmette.runtime.plan import StepResult, Worker
from palmette.runtime.scheduler.admission import Admission
from palmette.runtime.scheduler.batch import Row, StepBatch
from palmette.runtime.scheduler.intake import Intake
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.stops import Stop
from palmette.runtime.scheduler.tally import Tally
from palmette.runtime.vocabulary import Vocabulary

log = logging.getLogger(__name__)


class EngineCore:
    """Scheduler and worker of one engine. `submit` and `step` must be called from one thread."""

    def __init__(
        self,
        config: EngineConfig,
        worker: Worker[Any],
        cache: RadixCache,
        vocabulary: Vocabulary,
        ready: EngineReady,
    ) -> None:
        self.ready = ready
        self._config = config
        self._worker = worker
        self._cache = cache
        self._page_size = config.page_size
        self._intake = Intake(vocabulary, context_length=ready.context_length, pool_tokens=ready.kv_tokens)
        self._oracle = ReuseOracle()
        self._queue = WaitingQueue(config.policy)
        self._admission = Admission(cache, self._oracle, self._queue, config.page_size)
        self._running: list[Sequence] = []  # in order of admission
        self._free_slots = list(range(config.max_running - 1, -1, -1))
        self._pending_writes: list[tuple[int, int, PageId]] = []  # table writes that no executed step has carried yet
        self._replies: list[Reply] = []
        self._tally = Tally()
        self._hold_admission = False  # after a retraction, until a running sequence has ended
        self._steps = 0

    # --- receive ---

    def submit(self, request: Request) -> None:
        """Takes one request. A bad one is answered with Failed in the next step's replies; never raises for it."""
        with self._tally.time("receive"):
            try:
                self._receive(request)
            except PalmetteError as error:
                self._tally.failed += 1
                self._replies.append(Failed(_id(request), error.info()))

    def _receive(self, request: Request) -> None:
        match request:
            case Generate():
                self._queue.add(self._intake.generate(request))
            case Score():
                for sequence in self._intake.score(request):
                    self._queue.add(sequence)
            case Abort():
                self._abort(request.id)
            case FlushCache():
                self._replies.append(Flushed(request.id, self._cache.clear()))
            case DumpTree():
                self._replies.append(TreeDump(request.id, self._page_size, to_message(self._cache)))
            case Shutdown():
                if not request.drain:
                    for request_id in {sequence.request_id for sequence in (*self._running, *self._queue)}:
                        self._abort(request_id)

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._queue or self._replies)

    # --- step ---

    def step(self) -> list[Reply]:
        """One step. Returns its replies; without work it does nothing."""
        with self._tally.time("plan"):
            batch = self._plan()
        if batch.rows:
            result = self._execute(batch)
            if result is not None:
                with self._tally.time("commit"):
                    self._commit(batch, result)
        if self._config.check_invariants:
            violations = self._violations()
            assert not violations, "; ".join(map(str, violations))
        replies, self._replies = self._replies, []
        return replies

    def _plan(self) -> StepBatch:
        batch = StepBatch(self._steps, table_writes=self._pending_writes)
        for sequence in [s for s in self._running if s.decoding]:
            if sequence in self._running and self._grow(sequence):
                batch.add(Row(sequence, sequence.computed, sequence.length))
        for sequence in self._running:
            if not sequence.decoding and batch.tokens < self._config.step_tokens:
                self._add_chunk(sequence, batch)
        if self._may_admit(batch):
            for sequence in self._admission.admit(self._running, batch):
                self._start(sequence)
                self._add_chunk(sequence, batch)
                if not self._may_admit(batch):
                    break
        return batch

    def _may_admit(self, batch: StepBatch) -> bool:
        free = bool(self._queue and self._free_slots) and not self._hold_admission
        return free and batch.tokens < self._config.step_tokens

    def _add_chunk(self, sequence: Sequence, batch: StepBatch) -> None:
        end = min(sequence.length, sequence.computed + self._config.step_tokens - batch.tokens)
        batch.add(Row(sequence, sequence.computed, end))

    def _start(self, sequence: Sequence) -> None:
        sequence.slot = self._free_slots.pop()
        if sequence.admitted is None:
            sequence.admitted = time.monotonic()
        self._write_table(sequence, 0)
        self._running.append(sequence)

    def _grow(self, sequence: Sequence) -> bool:
        """A page for the next position. Where none is to be had the latest admitted sequences are retracted; the
        first admitted one never is, so progress is always made. False: `sequence` itself was retracted."""
        if sequence.computed < len(sequence.pages) * self._page_size:
            return True
        while True:
            try:
                pages = self._cache.allocate(1)
            except OutOfPages:
                victim = self._running[-1]
                assert len(self._running) > 1, "one sequence always fits: intake refused what can't"
                self._retract(victim)
                if victim is sequence:
                    return False
            else:
                sequence.pages += pages
                self._write_table(sequence, len(sequence.pages) - 1)
                return True

    def _retract(self, sequence: Sequence) -> None:
        """Give up slot and pages; what was computed stays in the tree until it is evicted."""
        self._leave(sequence)
        sequence.retractions += 1
        self._tally.retractions += 1
        self._hold_admission = True
        self._queue.put_back(sequence)

    def _write_table(self, sequence: Sequence, first: int) -> None:
        """The worker's block table of `sequence` is to hold its pages from index `first` on."""
        slot = sequence.slot
        assert slot is not None
        pages = sequence.pages
        self._pending_writes += [(slot, index, pages[index]) for index in range(first, len(pages))]

    # --- execute ---

    def _execute(self, batch: StepBatch) -> StepResult | None:
        """None where the worker failed: the requests of this step are failed, the others go on."""
        self._steps += 1
        try:
            with self._tally.time("plan"):
                step_plan, sample_plan = batch.plans(self._page_size)
            with self._tally.time("execute"):
                return self._worker.sample(self._worker.forward(step_plan), sample_plan)
        except Exception as fault:
            log.exception("step %d failed", batch.step)
            error = InternalError(
                f"The step that computed this request failed: {type(fault).__name__}: {fault}.",
                hint="Other requests go on. Please report it with the engine's log.",
            )
            for row in batch.rows:
                self._fail(row.sequence, error, keep_committed=False)
            alive = {sequence.slot for sequence in self._running}
            self._pending_writes = [write for write in self._pending_writes if write[0] in alive]
            return None

    # --- commit ---

    def _commit(self, batch: StepBatch, result: StepResult) -> None:
        self._pending_writes = []
        sample = scored = 0
        for row in batch.rows:
            sequence = row.sequence
            assert sequence.lease is not None
            sequence.lease.drop_tail()  # what this step copied from it has been written
            prefilled = not sequence.decoding
            if prefilled:
                sequence.computed_tokens += row.end - row.start
            sequence.computed = row.end
            for position in row.scored:
                self._take_score(sequence, position, result, scored)
                scored += 1
            if not row.samples:
                self._after_chunk(sequence)
                continue
            problem = result.sample_errors.get(sample)
            if problem is not None:
                self._fail(sequence, InternalError(problem), keep_committed=False)
            else:
                self._take_token(sequence, result, sample)
                if prefilled and sequence.slot is not None:
                    self._insert(sequence)
            sample += 1
        self._tally.steps = self._steps

    def _take_score(self, sequence: Sequence, position: int, result: StepResult, index: int) -> None:
        scoring = sequence.scoring
        assert scoring is not None
        logprob = TokenLogprob(
            sequence.token(position), float(result.scored_logprobs[index]), result.scored_top.at(index)
        )
        scoring.results.append(logprob)
        scoring.next = position + 1

    def _after_chunk(self, sequence: Sequence) -> None:
        """A chunk that did not sample: more to come, a score that is complete, or a prompt without output."""
        if sequence.computed < sequence.length:
            self._insert(sequence)
        elif sequence.group is not None:
            self._finish_score(sequence)
        else:
            self._finish(sequence, "length")

    def _insert(self, sequence: Sequence) -> None:
        """Give the tree the whole pages computed so far. Pages that it already had elsewhere take the place of ours."""
        assert sequence.lease is not None
        key = sequence.key(sequence.computed)
        remaps = self._cache.insert(sequence.lease, key, sequence.pages)
        for remap in remaps:
            sequence.pages[remap.index] = remap.new_page
            assert sequence.slot is not None
            self._pending_writes.append((sequence.slot, remap.index, remap.new_page))
        # Table writes go before the rows of the next plan, so a freed page can be handed out in it.
        self._cache.free([remap.old_page for remap in remaps])
        self._oracle.observe(key, sequence.namespace)

    def _take_token(self, sequence: Sequence, result: StepResult, index: int) -> None:
        generation = sequence.generation
        assert generation is not None
        token = int(result.tokens[index])
        if sequence.first_token is None:
            sequence.first_token = time.monotonic()
        sequence.append(token)
        generation.count(token)
        logprobs = None
        if generation.params.logprobs:
            logprobs = (TokenLogprob(token, float(result.logprobs[index]), result.top.at(index)),)
        stop = generation.stops.accept(token, generation.outputs)
        if stop is not None:
            self._finish(sequence, "stop", stop, token, logprobs)
        elif generation.outputs >= generation.max_tokens:
            self._finish(sequence, "length", None, token, logprobs)
        else:
            self._replies.append(Generated(id=sequence.request_id, tokens=pack((token,)), logprobs=logprobs))

    # --- endings ---

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        stop: Stop | None = None,
        token: int | None = None,
        logprobs: tuple[TokenLogprob, ...] | None = None,
    ) -> None:
        self._leave(sequence)
        generation = sequence.generation
        assert generation is not None
        finish = Finish(
            reason=reason,
            usage=self._usage(sequence),
            kept_tokens=stop.kept_tokens if stop else generation.outputs,
            kept_bytes=stop.kept_bytes if stop else b"",
            matched=stop.matched if stop else None,
            prompt_logprobs=tuple(sequence.scoring.results) if sequence.scoring else None,
        )
        tokens = pack((token,)) if token is not None else b""
        self._replies.append(Generated(id=sequence.request_id, tokens=tokens, logprobs=logprobs, finish=finish))

    def _finish_score(self, sequence: Sequence) -> None:
        group, scoring = sequence.group, sequence.scoring
        assert group is not None
        assert scoring is not None
        sequence.first_token = time.monotonic()
        self._leave(sequence)
        group.results[sequence.group_index] = tuple(result.logprob for result in scoring.results)
        group.usages.append(self._usage(sequence))
        if group.done:
            results = tuple(result for result in group.results if result is not None)
            self._replies.append(Scored(id=group.id, logprobs=results, usage=_sum(group.usages)))

    def _abort(self, request_id: str) -> None:
        """Ends the request's sequences. An id that is not open was answered already: nothing to do."""
        found = [s for s in (*self._running, *self._queue) if s.request_id == request_id]
        for sequence in found:
            self._tally.aborted += 1
            if sequence.slot is None:
                self._queue.remove(sequence)
            if sequence.group is None:
                self._finish(sequence, "abort")
            else:
                self._leave(sequence)
        if found and found[0].group is not None:
            self._replies.append(Failed(request_id, Aborted(f"Request {request_id!r} was aborted.").info()))

    def _fail(self, sequence: Sequence, error: PalmetteError, *, keep_committed: bool) -> None:
        """Answers the sequence's request with `error`; of a Score request every sequence ends."""
        if sequence.slot is None:
            return  # it went with an earlier sequence of its group
        siblings = [s for s in (*self._running, *self._queue) if s.request_id == sequence.request_id]
        for each in siblings:
            if each.slot is None:
                self._queue.remove(each)
            self._leave(each, keep_committed=keep_committed)
        self._tally.failed += 1
        self._replies.append(Failed(sequence.request_id, error.info()))

    def _leave(self, sequence: Sequence, *, keep_committed: bool = True) -> None:
        """Out of the running set. Committed KV goes to the tree, the other pages back to the pool."""
        if sequence.slot is None:
            return
        assert sequence.lease is not None
        key = sequence.key(sequence.computed)
        if keep_committed:
            self._cache.finish(sequence.lease, key, sequence.pages)
            self._oracle.observe(key, sequence.namespace)
        else:
            self._cache.free(sequence.pages[len(sequence.lease.pages) :])
            sequence.lease.release()
        self._running.remove(sequence)
        self._free_slots.append(sequence.slot)
        self._pending_writes[:] = [write for write in self._pending_writes if write[0] != sequence.slot]
        sequence.slot, sequence.lease, sequence.pages, sequence.computed = None, None, [], 0
        self._hold_admission = False

    # --- health ---

    def audit(self) -> None:
        """Checks the tree from scratch; the link calls it now and then while nothing runs.

        What is wrong is taken out of use: its pages are quarantined, its subtrees dropped, and the requests that
        hold them failed. The engine goes on.
        """
        violations = self._violations()
        if not violations:
            return
        for violation in violations:
            log.error("radix cache: %s", violation)
        pages = [page for violation in violations for page in violation.pages]
        lost = set(self._cache.quarantine(pages, [node for violation in violations for node in violation.nodes]))
        error = InternalError("The cached pages of this request were damaged.", hint="Send it again.")
        for sequence in list(self._running):
            if sequence.lease in lost:
                self._fail(sequence, error, keep_committed=False)

    def _violations(self) -> list[Violation]:
        return check_invariants(self._cache, [s.pages[len(s.lease.pages) :] for s in self._running if s.lease])

    # --- figures ---

    def _usage(self, sequence: Sequence) -> Usage:
        usage = sequence.usage(time.monotonic())
        self._tally.finish(usage)
        return usage

    def counters(self) -> Counters:
        """Totals and gauges at this moment."""
        cache = self._cache
        return self._tally.counters(
            running=len(self._running),
            waiting=len(self._queue),
            pages_total=cache.pages,
            pages_free=cache.free_count,
            pages_cached=cache.cached_pages,
            evicted_pages=cache.evicted_pages,
            quarantined_pages=cache.quarantined_pages,
        )


def _id(request: Request) -> str:
    return "" if isinstance(request, Shutdown) else request.id


def _sum(usages: list[Usage]) -> Usage:
    """The usage of a Score request: tokens add up, waits are those of the last to finish."""
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        reusable_tokens=sum(usage.reusable_tokens for usage in usages),
        computed_tokens=sum(usage.computed_tokens for usage in usages),
        retractions=sum(usage.retractions for usage in usages),
        queue_seconds=max(usage.queue_seconds for usage in usages),
        first_token_seconds=max(usage.first_token_seconds for usage in usages),
        total_seconds=max(usage.total_seconds for usage in usages),
    )
