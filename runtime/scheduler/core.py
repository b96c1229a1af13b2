"""The engine's step: receive → plan → execute → commit → emit. Owns every sequence from arrival to its last reply.

`plan` only reserves (pages, slots, leases); `commit` makes tokens and KV real; a failure releases what was reserved
and fails the requests of that step, nobody else. Runs in one thread; who drives it (a thread, a process) is the
link's matter. Knows nothing of text, HTTP or torch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.dump import to_message
from palmette.radix_cache.oracle import ReuseOracle
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import InternalError, PalmetteError
from palmette.runtime.grammar.compile import Compiler
from palmette.runtime.messages.hints import Hint
from palmette.runtime.messages.replies import (
    Counters,
    EngineReady,
    Flushed,
    Reply,
    TreeDump,
)
from palmette.runtime.messages.requests import Abort, DumpTree, Embed, FlushCache, Generate, Request, Score, Shutdown
from palmette.runtime.plan import StepResult, Worker
from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.scheduler.admission import Admission
from palmette.runtime.scheduler.aging import Aging
from palmette.runtime.scheduler.audit import inspect
from palmette.runtime.scheduler.batch import StepBatch
from palmette.runtime.scheduler.chunking import PrefillBudget, StepTime, step_load
from palmette.runtime.scheduler.grammars import Grammars
from palmette.runtime.scheduler.health import Health
from palmette.runtime.scheduler.hints import honour
from palmette.runtime.scheduler.intake import Intake
from palmette.runtime.scheduler.known_scores import recall
from palmette.runtime.scheduler.open_requests import OpenRequests
from palmette.runtime.scheduler.outcome import Outcome
from palmette.runtime.scheduler.output import append
from palmette.runtime.scheduler.planner import Planner
from palmette.runtime.scheduler.policies import Facts, new_policy
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.retraction import Growth
from palmette.runtime.scheduler.running import RunningSet
from palmette.runtime.scheduler.sampling import SamplePlanning
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.tally import Tally
from palmette.runtime.scheduler.targets import Targets
from palmette.runtime.vocabulary import Vocabulary

ORACLE_POOLS = 32
FEWEST_ORACLE_TOKENS, MOST_ORACLE_TOKENS = 1_000_000, 8_000_000

log = logging.getLogger(__name__)


class EngineCore:
    """Scheduler and worker of one engine. `submit` and `step` must be called from one thread.

    `clock`: seconds that only grow; a simulation gives its own, which its worker advances. `step_time` predicts steps,
    and is told how long they took; without one prefill chunks follow `step_tokens` alone, whatever the target.
    `compiler`: of the grammars that outputs follow; without one they are refused.
    """

    def __init__(
        self,
        config: EngineConfig,
        worker: Worker[Any],
        cache: RadixCache,
        vocabulary: Vocabulary,
        ready: EngineReady,
        *,
        clock: Callable[[], float] = time.monotonic,
        step_time: StepTime | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        self.ready = ready
        self._clock = clock
        self._config = config
        self._worker = worker
        self._cache = cache
        self._page_size = config.page_size
        self._step_time = step_time
        self._intake = Intake(
            vocabulary,
            context_length=ready.context_length,
            pool_tokens=ready.kv_tokens,
            targets=Targets(_seconds(config.ttft_target_ms), _seconds(config.tpot_target_ms)),
            clock=clock,
        )
        self._oracle = oracle = ReuseOracle(oracle_tokens(cache.pages * cache.page_size))
        self._running = RunningSet(cache, oracle, config.max_running, self._grown)
        facts = Facts(self._matched, lambda: cache.evicted_pages, clock, self._prefill_seconds, self._running)
        self._queue = WaitingQueue(
            lambda: new_policy(config.policy, facts),
            lambda: Aging(config.aging_alpha, config.aging_beta),
            self._matched,
            lambda sequence: (
                sequence.under_way or cache.paths.continues_leaf(sequence.key(sequence.matchable), sequence.namespace)
            ),
        )
        self._grammars = Grammars(compiler)
        self._tally = Tally()
        self._growth = Growth(config.page_size)
        self._planner = Planner(
            cache,
            self._running,
            self._queue,
            Admission(cache, oracle, self._queue, self._growth, config.page_size),
            PrefillBudget(config.step_tokens, _seconds(config.itl_target_ms), step_time),
            preempts=config.policy == "priority",
            clock=clock,
        )
        self._sampling = SamplePlanning()
        self._requests = OpenRequests(self._running, self._queue, self._grammars, self._growth, self._tally, clock)
        self._outcome = Outcome(self._running, self._requests, clock)
        self._health = Health(cache, self._running, self._requests, self._intake, clock, self._settle)
        self._steps = 0
        self._broken_step: int | None = None  # the last that broke

    # --- receive ---

    def submit(self, request: Request) -> None:
        """Takes one request. A bad one is answered with Failed in the next step's replies; never raises for it."""
        with self._tally.time("receive"):
            try:
                self._receive(request)
            except PalmetteError as error:
                self._requests.fail(_id(request), error)
            except Exception as fault:
                log.exception("a %s could not be taken", type(request).__name__)
                self._requests.fail(_id(request), InternalError(f"The request could not be taken: {_told(fault)}."))
                self.audit()

    def _receive(self, request: Request) -> None:
        match request:
            case Generate():
                self._enqueue(request.id, [self._intake.generate(request)])
            case Score():
                self._enqueue(request.id, self._intake.score(request))
            case Embed():
                self._enqueue(request.id, self._intake.embed(request))
            case Abort():
                self._requests.abort(request.id)
            case Hint():
                honour(request, self._cache, self._clock())
            case FlushCache():
                self._requests.replies.append(Flushed(request.id, self._cache.clear()))
                self._queue.rebuild([*self._queue])
            case DumpTree():
                self._requests.replies.append(TreeDump(request.id, self._page_size, to_message(self._cache)))
            case Shutdown():
                if not request.drain:
                    self._requests.abort_all()

    def _enqueue(self, request_id: str, sequences: list[Sequence]) -> None:
        self._requests.add(request_id, sequences)
        for sequence in sequences:
            if self._grammars.begin(sequence):
                self._line_up(sequence)

    def _line_up(self, sequence: Sequence) -> None:
        """Into the queue, with the tokens that a grammar forces at the very beginning."""
        generation = sequence.generation
        if generation is not None and generation.constrained is not None and sequence.scoring is None:
            ending = append(sequence, generation.constrained.forced(generation.max_tokens))
            if ending is not None:
                self._requests.end(sequence, ending)
                return
        if self._is_known(sequence):
            return
        sequence.moment = self._steps
        self._queue.add(sequence)

    def _is_known(self, sequence: Sequence) -> bool:
        """Scores that are all kept by the cache are answered at once."""
        scoring = sequence.scoring
        if not recall(sequence, self._cache) or sequence.outputs_left:
            return False
        assert scoring is not None
        if not scoring.over:
            return False
        self._cache.match(sequence.key(sequence.prompt_length), sequence.namespace).release()  # it counts as a use
        sequence.admitted = self._clock()
        sequence.cached_tokens = sequence.reusable_tokens = sequence.prompt_tokens
        if sequence.group is not None:
            self._requests.finish_part(sequence)
        else:
            self._requests.finish(sequence, "length")
        return True

    def _take_compiled(self, batch: StepBatch) -> None:
        """Requests whose grammar is there now line up; those whose grammar is none fail."""
        if not self._grammars:
            return
        idle = not (self._running or self._queue or self._requests.replies)
        for sequence, problem in self._grammars.compiled(idle=idle):
            batch.subject = sequence
            if problem is None:
                self._line_up(sequence)
            else:
                self._requests.fail(sequence.request_id, problem)

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._queue or self._requests.replies or self._grammars)

    # --- step ---

    def step(self) -> list[Reply]:
        """One step. Returns its replies; without work it does nothing."""
        batch = StepBatch(self._steps)
        try:
            with self._tally.time("plan"):
                self._take_compiled(batch)
                self._planner.plan(batch)
            if batch.rows:
                result = self._execute(batch)
                self._commit(batch, result)
        except Exception as fault:
            self._contain(batch, fault)
        return self._emit()

    def _emit(self) -> list[Reply]:
        if self._config.check_invariants:
            findings = inspect(self._cache, self._running)
            assert not findings, findings
        replies, self._requests.replies = self._requests.replies, []
        return replies

    # --- execute ---

    def _execute(self, batch: StepBatch) -> StepResult:
        self._steps += 1
        with self._tally.time("plan"):
            step_plan = batch.step_plan(self._page_size)
            sample_plan = self._sampling.begin(batch)
        start = self._clock()
        with self._tally.time("execute"):
            try:
                handle = self._worker.forward(step_plan)
            finally:
                sample_plan.exception()  # whatever follows, nobody reads the batch any more
            result = self._worker.sample(handle, sample_plan.result())
        if self._step_time is not None:
            self._step_time.observe(step_load(batch.rows), self._clock() - start)
        return result

    def _commit(self, batch: StepBatch, result: StepResult) -> None:
        with self._tally.time("commit"):
            self._outcome.commit(batch, result)
            self._tally.steps = self._steps
            self._tally.note_batch(len(batch.rows), sum([row.decodes for row in batch.rows]), batch.tokens)

    def _contain(self, batch: StepBatch, fault: Exception) -> None:
        """A step that broke, wherever: its requests fail, and what they held is free again. The others go on."""
        log.exception("step %d failed", batch.step)
        error = InternalError(
            f"The step that computed this request failed: {_told(fault)}.",
            hint="Other requests go on. Please report it with the engine's log.",
        )
        concerned = [row.sequence for row in batch.rows if row.sequence not in batch.over] + batch.admitted
        if batch.subject is not None:
            concerned.append(batch.subject)
        written = {slot for slot, _, _ in batch.table_writes}  # block tables that the worker may not have
        concerned += [sequence for sequence in self._running if sequence.slot in written]
        concerned += self._mend()
        if not concerned and self._broken_step == self._steps:  # twice over nobody: whoever is next must be the reason
            concerned = [*self._queue, *self._running][:1]
        self._broken_step = self._steps
        self._requests.fail_all_of(concerned, error)
        self.audit()

    def _mend(self) -> list[Sequence]:
        """Makes running set and queue whole again from the open sequences; returns those that were between both."""
        opened = list(self._requests)
        between = self._running.mend(opened)
        self._oracle.clear()  # it may be half changed, and is a figure only
        placed = (self._running, self._grammars)
        self._queue.rebuild(sequence for sequence in opened if not any(sequence in place for place in placed))
        return between

    # --- health ---

    def upkeep(self) -> None:
        """The links call it now and then while nothing runs: an audit, where steps were made since the last one."""
        self._grammars.make_ready()
        self._health.upkeep(self._steps)

    def close(self) -> None:
        """The last call: gives up what works for it beside this thread."""
        self._grammars.close()

    def audit(self) -> None:
        """Checks the tree from scratch; what is damaged is taken out of use (health.py)."""
        self._health.audit()

    def _settle(self) -> None:
        """Returns once no step in flight uses a page any more."""

    # --- figures ---

    def _matched(self, sequence: Sequence) -> int:
        """Tokens of it that the tree holds now."""
        return self._cache.peek(sequence.key(sequence.matchable), sequence.namespace)

    def _grown(self, namespace: str, key: bytes, known: int) -> None:
        self._queue.grown(namespace, key, known)

    def _prefill_seconds(self, tokens: int) -> float:
        """At least, alone in a step; 0 where nothing is known."""
        return 0.0 if self._step_time is None else self._step_time.seconds(StepLoad.uniform(1, tokens, 0))

    def counters(self) -> Counters:
        """Totals and gauges at this moment."""
        cache = self._cache
        return self._tally.counters(
            retractions=self._planner.retractions,
            preemptions=self._planner.preemptions,
            running=len(self._running),
            waiting=len(self._queue),
            pages_total=cache.pages,
            pages_free=cache.free_count,
            pages_cached=cache.cached_pages,
            evicted_pages=cache.evicted_pages,
            quarantined_pages=cache.quarantined_pages,
            tree_resets=self._health.emptied,
            grammar_seconds=self._grammars.seconds,
        )


def oracle_tokens(pool_tokens: int) -> int:
    """How many tokens of computed sequences are remembered to say what an infinite pool would have reused: of many
    pools, but not so many that their 4 bytes each come to matter beside the engine's memory."""
    return min(max(ORACLE_POOLS * pool_tokens, FEWEST_ORACLE_TOKENS), MOST_ORACLE_TOKENS)


def _told(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def _id(request: Request) -> str:
    return "" if isinstance(request, Shutdown) else request.id
