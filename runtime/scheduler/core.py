"""The engine's step: receive → plan → execute → commit → emit. Owns every sequence from arrival to its last reply.

`plan` only reserves (pages, slots, leases); `commit` makes tokens and KV real; a failure releases what was reserved
and fails the requests of that step, nobody else. Runs in one thread; who drives it (a thread, a process) is the
link's matter. Knows nothing of text, HTTP or torch.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any, TypeGuard

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.dump import to_message
from palmette.radix_cache.hints import Hint as Future
from palmette.radix_cache.oracle import ReuseOracle
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import Aborted, InternalError, InvalidRequest, NeverFits, PalmetteError
from palmette.runtime.grammar.compile import Compiler
from palmette.runtime.messages.hints import Hint
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
from palmette.runtime.plan import StepResult, Worker
from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.scheduler.admission import Admission
from palmette.runtime.scheduler.aging import Aging
from palmette.runtime.scheduler.audit import inspect, quarantine
from palmette.runtime.scheduler.batch import Row, StepBatch
from palmette.runtime.scheduler.chunking import PrefillBudget, StepTime, step_load
from palmette.runtime.scheduler.grammars import Grammars
from palmette.runtime.scheduler.intake import Intake
from palmette.runtime.scheduler.known_scores import recall
from palmette.runtime.scheduler.output import Ending, append, fault, unsent
from palmette.runtime.scheduler.planner import Planner
from palmette.runtime.scheduler.policies import Facts, new_policy
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.retraction import Growth
from palmette.runtime.scheduler.running import RunningSet
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.stops import Stop
from palmette.runtime.scheduler.tally import Tally
from palmette.runtime.scheduler.targets import Targets
from palmette.runtime.vocabulary import Vocabulary

AUDIT_ROUNDS = 4
AUDIT_SECONDS = 30.0  # at least, between the audits of an engine that nothing is wrong with

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
        self._oracle = oracle = ReuseOracle()
        self._running = RunningSet(cache, oracle, config.max_running, self._grown)
        facts = Facts(self._matched, lambda: cache.evicted_pages, clock, self._prefill_seconds, self._running)
        self._queue = WaitingQueue(
            lambda: new_policy(config.policy, facts),
            lambda: Aging(config.aging_alpha, config.aging_beta),
            self._matched,
            lambda sequence: cache.continues_leaf(sequence.key(sequence.matchable), sequence.namespace),
        )
        self._grammars = Grammars(compiler)
        self._open: dict[str, list[Sequence]] = {}  # by request id; those of a score that are done are gone
        self._replies: list[Reply] = []
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
        self._steps = 0
        self._broken_step: int | None = None  # the last that broke
        self._audited_step = 0
        self._next_audit = 0.0

    # --- receive ---

    def submit(self, request: Request) -> None:
        """Takes one request. A bad one is answered with Failed in the next step's replies; never raises for it."""
        with self._tally.time("receive"):
            try:
                self._receive(request)
            except PalmetteError as error:
                self._fail(_id(request), error)
            except Exception as fault:
                log.exception("a %s could not be taken", type(request).__name__)
                self._fail(_id(request), InternalError(f"The request could not be taken: {_told(fault)}."))
                self.audit()

    def _receive(self, request: Request) -> None:
        match request:
            case Generate():
                self._enqueue(request.id, [self._intake.generate(request)])
            case Score():
                self._enqueue(request.id, self._intake.score(request))
            case Abort():
                self._abort(request.id)
            case Hint():
                self._hint(request)
            case FlushCache():
                self._replies.append(Flushed(request.id, self._cache.clear()))
                self._queue.rebuild([*self._queue])
            case DumpTree():
                self._replies.append(TreeDump(request.id, self._page_size, to_message(self._cache)))
            case Shutdown():
                if not request.drain:
                    for request_id in list(self._open):
                        self._abort(request_id)

    def _hint(self, hint: Hint) -> None:
        """What is known of a cached path's future goes to the cache; nothing is answered."""
        now, cache = self._clock(), self._cache
        if hint.next_use_seconds is not None or hint.last_use or hint.tool_wait_seconds is not None:
            next_use, wait = hint.next_use_seconds, hint.tool_wait_seconds
            future = Future(
                next_use=None if next_use is None else now + next_use,
                last_use=hint.last_use,
                waits_until=None if wait is None else now + wait,
            )
            cache.hint(hint.tokens, hint.namespace, future, priority=hint.priority)
        elif hint.priority is not None:
            cache.hint(hint.tokens, hint.namespace, priority=hint.priority)
        if hint.pin_seconds is not None:
            if hint.pin_seconds > 0:
                cache.pin(hint.tokens, hint.namespace, hint.pin_seconds)
            else:
                cache.unpin(hint.tokens, hint.namespace)

    def _enqueue(self, request_id: str, sequences: list[Sequence]) -> None:
        if request_id in self._open:
            raise InvalidRequest(
                f"A request with id {request_id!r} was open already; both have ended.",
                hint="Give each request an id of its own.", param="id",
            )  # fmt: skip
        self._open[request_id] = sequences
        for sequence in sequences:
            if self._grammars.begin(sequence):
                self._line_up(sequence)

    def _line_up(self, sequence: Sequence) -> None:
        """Into the queue, with the tokens that a grammar forces at the very beginning."""
        generation = sequence.generation
        if generation is not None and generation.constrained is not None and sequence.scoring is None:
            ending = append(sequence, generation.constrained.forced(generation.max_tokens))
            if ending is not None:
                self._end(sequence, ending)
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
        if scoring.next < sequence.prompt_length:
            return False
        self._cache.match(sequence.key(sequence.prompt_length), sequence.namespace).release()  # it counts as a use
        sequence.admitted = self._clock()
        sequence.cached_tokens = sequence.reusable_tokens = sequence.prompt_length
        if sequence.group is not None:
            self._finish_score(sequence)
        else:
            self._finish(sequence, "length")
        return True

    def _take_compiled(self, batch: StepBatch) -> None:
        """Requests whose grammar is there now line up; those whose grammar is none fail."""
        if not self._grammars:
            return
        idle = not (self._running or self._queue or self._replies)
        for sequence, problem in self._grammars.compiled(idle=idle):
            batch.subject = sequence
            if problem is None:
                self._line_up(sequence)
            else:
                self._fail(sequence.request_id, problem)

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._queue or self._replies or self._grammars)

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
                with self._tally.time("commit"):
                    self._commit(batch, result)
        except Exception as fault:
            self._contain(batch, fault)
        return self._emit()

    def _emit(self) -> list[Reply]:
        if self._config.check_invariants:
            findings = inspect(self._cache, self._running)
            assert not findings, findings
        replies, self._replies = self._replies, []
        return replies

    # --- execute ---

    def _execute(self, batch: StepBatch) -> StepResult:
        self._steps += 1
        with self._tally.time("plan"):
            step_plan, sample_plan = batch.step_plan(self._page_size), batch.sample_plan()
        start = self._clock()
        with self._tally.time("execute"):
            result = self._worker.sample(self._worker.forward(step_plan), sample_plan)
        if self._step_time is not None:
            self._step_time.observe(step_load(batch.rows), self._clock() - start)
        return result

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
        answered = {reply.id for reply in self._replies if _is_last(reply)}
        for request_id in dict.fromkeys(sequence.request_id for sequence in concerned):
            if request_id in answered:
                self._open.pop(request_id, None)  # the fault came behind the answer
            else:
                self._fail(request_id, error)
        self.audit()

    def _mend(self) -> list[Sequence]:
        """Makes running set and queue whole again from the open sequences; returns those that were between both."""
        opened = [sequence for sequences in self._open.values() for sequence in sequences]
        between = self._running.mend(opened)
        self._oracle.clear()  # it may be half changed, and is a figure only
        placed = (self._running, self._grammars)
        self._queue.rebuild(sequence for sequence in opened if not any(sequence in place for place in placed))
        return between

    # --- commit ---

    def _commit(self, batch: StepBatch, result: StepResult) -> None:
        tokens = result.tokens.tolist()
        sample = scored = 0
        for row in batch.rows:
            if row.sequence.slot is not None:  # else it fell with another row of its request
                problem = self._commit_row(row, result, scored)
                if problem is None and row.samples:
                    problem = result.sample_errors.get(sample)
                if problem is not None:
                    self._fail(row.sequence.request_id, InternalError(problem))
                elif row.samples:
                    self._take_token(row, tokens[sample], result, sample)
                else:
                    self._after_chunk(row.sequence)
            sample += row.samples
            scored += len(row.scored)
        self._tally.steps = self._steps

    def _commit_row(self, row: Row, result: StepResult, scored: int) -> str | None:
        """Its KV is real from here on. Why that is of no use, where it isn't. `scored`: where its scores begin."""
        sequence = row.sequence
        assert sequence.lease is not None
        if sequence.lease.tail is not None:
            sequence.lease.drop_tail()  # what this step copied from it has been written
        if not row.decodes:
            sequence.note_computed(row.start, row.end)
        sequence.computed = row.end
        return self._take_scores(row, result, scored) if row.scored else None

    def _take_scores(self, row: Row, result: StepResult, first: int) -> str | None:
        """Why there are none, where that is so."""
        for index, position in enumerate(row.scored, first):
            scoring, logprob = row.sequence.scoring, float(result.scored_logprobs[index])
            assert scoring is not None
            if not math.isfinite(logprob):
                return (
                    f"The model's log-probability of the token at position {position} is {logprob}, no finite number."
                )
            entry = TokenLogprob(row.sequence.token(position), logprob, result.scored_top.at(index))
            scoring.results.append(entry)
            scoring.next = position + 1
        return None

    def _after_chunk(self, sequence: Sequence) -> None:
        """A chunk that did not sample: more to come, a score that is complete, or a prompt without output."""
        if sequence.computed < sequence.length:
            self._running.insert(sequence)
        elif sequence.group is not None:
            self._finish_score(sequence)
        else:
            self._finish(sequence, "length")

    def _take_token(self, row: Row, token: int, result: StepResult, index: int) -> None:
        """A sampled token and those that a grammar forces behind it, or what closes the output in its place."""
        sequence = row.sequence
        generation = sequence.generation
        assert generation is not None
        if sequence.first_token is None:
            sequence.first_token = self._clock()
        tokens = [token]
        if generation.constrained is not None:
            taken = generation.constrained.take(token, sequence.outputs_left)
            if taken is None:
                problem = f"Token {token} was drawn, which the grammar does not allow."
                self._fail(sequence.request_id, InternalError(problem))
                return
            tokens = taken
        drawn = None
        if generation.params.logprobs and tokens[:1] == [token]:
            drawn = TokenLogprob(token, float(result.logprobs[index]), result.top.at(index))
        ending = append(sequence, tokens, drawn)
        if ending is not None:
            self._end(sequence, ending)
            return
        self._replies.append(unsent(sequence))
        if not row.decodes:
            self._running.insert(sequence)

    # --- endings ---

    def _end(self, sequence: Sequence, ending: Ending) -> None:
        """An output that is over, unless what came out is not what was wanted."""
        problem = fault(sequence) if ending.reason == "stop" else None
        if problem is not None:
            self._fail(sequence.request_id, problem)
        else:
            self._finish(sequence, ending.reason, ending.stop)

    def _finish(self, sequence: Sequence, reason: FinishReason, stop: Stop | None = None) -> None:
        generation = sequence.generation
        assert generation is not None
        self._leave(sequence)
        del self._open[sequence.request_id]
        usage = self._usage(sequence)
        self._growth.ended(generation.outputs)
        if reason == "abort":
            self._tally.aborted += 1
        else:
            self._tally.finish(sequence.targets, usage)
        finish = Finish(
            reason=reason,
            usage=usage,
            kept_tokens=stop.kept_tokens if stop else generation.outputs,
            kept_bytes=stop.kept_bytes if stop else b"",
            matched=stop.matched if stop else None,
            prompt_logprobs=tuple(sequence.scoring.results) if sequence.scoring else None,
        )
        self._replies.append(unsent(sequence, finish))

    def _finish_score(self, sequence: Sequence) -> None:
        group, scoring = sequence.group, sequence.scoring
        assert group is not None
        assert scoring is not None
        sequence.first_token = self._clock()
        self._leave(sequence)
        self._open[group.id] = [other for other in self._open[group.id] if other is not sequence]
        values = tuple(result.logprob for result in scoring.results if result.logprob is not None)
        group.results[sequence.group_index] = values
        group.usages.append(self._usage(sequence))
        if group.done:
            self._tally.finish(sequence.targets, group.usage)
            del self._open[group.id]
            results = tuple(result for result in group.results if result is not None)
            self._replies.append(Scored(id=group.id, logprobs=results, usage=group.usage))

    def _abort(self, request_id: str) -> None:
        """Ends the request's sequences. An id that is not open was answered already: nothing to do."""
        sequences = self._open.get(request_id)
        if sequences is None:
            return
        if sequences[0].group is not None:
            self._fail(request_id, Aborted(f"Request {request_id!r} was aborted."))
            return
        if sequences[0] in self._queue:
            self._queue.remove(sequences[0])
        self._grammars.forget(sequences[0])
        self._finish(sequences[0], "abort")

    def _fail(self, request_id: str, error: PalmetteError) -> None:
        """Answers the request with `error`; what it computed since its last chunk is not kept. Never raises."""
        for sequence in self._open.pop(request_id, ()):
            self._usage(sequence)
            if sequence in self._queue:
                self._queue.remove(sequence)
            self._grammars.forget(sequence)
            if sequence not in self._running:
                continue
            try:
                self._running.leave(sequence, keep_committed=False)
            except Exception:
                log.exception("what request %r held could not be given back", request_id)
                self._running.forget(sequence)
        if isinstance(error, Aborted):
            self._tally.aborted += 1
        else:
            self._tally.failed += 1
        self._replies.append(Failed(request_id, error.info()))

    def _leave(self, sequence: Sequence) -> None:
        """Out of the running set, where it is there; committed KV goes to the tree."""
        if sequence in self._running:
            self._running.leave(sequence, keep_committed=True)

    # --- health ---

    def upkeep(self) -> None:
        """The links call it now and then while nothing runs: an audit, where steps were made since the last one."""
        now = self._clock()
        if self._steps != self._audited_step and now >= self._next_audit:
            self._audited_step, self._next_audit = self._steps, now + AUDIT_SECONDS
            self.audit()

    def audit(self) -> None:
        """Checks the tree from scratch: after a fault, and while nothing runs.

        What is wrong is taken out of use: its pages are quarantined, its subtrees dropped, and the requests that
        hold them failed. The engine goes on.
        """
        beyond = False
        for _ in range(AUDIT_ROUNDS):  # what is taken out may show what else is damaged
            try:
                findings = inspect(self._cache, self._running)
                damaged = quarantine(findings, self._cache, self._running) if findings else []
            except Exception:
                log.exception("the radix cache can't be audited")
                beyond = True
                break
            for sequence in damaged:
                self._fail(sequence.request_id, _damaged())
            if not findings:
                break
        else:
            beyond = bool(inspect(self._cache, self._running))
        if beyond:
            self._start_over()
        self._refuse_what_fits_no_more()

    def _start_over(self) -> None:
        """The tree can't be mended: it is emptied, and what runs fails."""
        log.error("the radix cache is emptied")
        running = list(self._running)
        self._running.forget_all()
        self._cache.reset()
        for sequence in running:
            self._fail(sequence.request_id, _damaged())

    def _refuse_what_fits_no_more(self) -> None:
        """Quarantine has made the pool smaller: what could need all of it would wait, or be retracted, forever."""
        room = (self._cache.pages - self._cache.quarantined_pages) * self._page_size
        self._intake.pool_tokens = room
        for request_id, sequences in list(self._open.items()):
            longest = max(sequence.longest for sequence in sequences)
            if longest > room:
                self._fail(request_id, NeverFits(
                    f"The request may need {longest} tokens; the KV pool has {room} left, since damaged pages were "
                    "taken out of use.",
                    hint="Restart the engine, or send less.",
                ))  # fmt: skip

    # --- figures ---

    def _matched(self, sequence: Sequence) -> int:
        """Tokens of it that the tree holds now."""
        return self._cache.peek(sequence.key(sequence.matchable), sequence.namespace)

    def _grown(self, namespace: str, key: bytes, known: int) -> None:
        self._queue.grown(namespace, key, known)

    def _prefill_seconds(self, tokens: int) -> float:
        """At least, alone in a step; 0 where nothing is known."""
        return 0.0 if self._step_time is None else self._step_time.seconds(StepLoad.uniform(1, tokens, 0))

    def _usage(self, sequence: Sequence) -> Usage:
        """Of a sequence that ends now, counted where it ran."""
        usage = sequence.usage(self._clock())
        if sequence.admitted is not None:
            self._tally.add(usage)
        return usage

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
        )


def _damaged() -> InternalError:
    return InternalError("The cached pages of this request were damaged.", hint="Send it again.")


def _told(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"


def _is_last(reply: Reply) -> TypeGuard[Generated | Scored | Failed]:
    return isinstance(reply, Scored | Failed) or (isinstance(reply, Generated) and reply.finish is not None)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def _id(request: Request) -> str:
    return "" if isinstance(request, Shutdown) else request.id
