"""The requests that are open, and how they end: each is answered once, and what it held is given back.

Knows running set, queue and tally; nothing of plans or workers. Owned by the core.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from palmette.runtime.errors import Aborted, InternalError, InvalidRequest, PalmetteError
from palmette.runtime.messages.replies import Embedded, Failed, Finish, FinishReason, Generated, Reply, Scored, Usage
from palmette.runtime.scheduler.grammars import Grammars
from palmette.runtime.scheduler.output import Ending, fault, unsent
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.retraction import Growth
from palmette.runtime.scheduler.running import RunningSet
from palmette.runtime.scheduler.scoring import PromptScoring
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.stops import Stop
from palmette.runtime.scheduler.tally import Tally

log = logging.getLogger(__name__)


class OpenRequests:
    """By id; iterates over the sequences of all. Those of a group that are done are gone.

    `replies`: what the next batch to the fronts will hold; the core adds the chunks of running outputs, and takes them.
    """

    def __init__(
        self,
        running: RunningSet,
        queue: WaitingQueue,
        grammars: Grammars,
        growth: Growth,
        tally: Tally,
        clock: Callable[[], float],
    ) -> None:
        self.replies: list[Reply] = []
        self._open: dict[str, list[Sequence]] = {}
        self._running = running
        self._queue = queue
        self._grammars = grammars
        self._growth = growth
        self._tally = tally
        self._clock = clock

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for sequences in self._open.values() for sequence in sequences)

    def add(self, request_id: str, sequences: list[Sequence]) -> None:
        """Raises InvalidRequest where the id is taken."""
        if request_id in self._open:
            raise InvalidRequest(
                f"A request with id {request_id!r} was open already; both have ended.",
                hint="Give each request an id of its own.", param="id",
            )  # fmt: skip
        self._open[request_id] = sequences

    # --- in full ---

    def end(self, sequence: Sequence, ending: Ending) -> None:
        """An output that is over, unless what came out is not what was wanted."""
        problem = fault(sequence)
        if problem is not None:
            self.fail(sequence.request_id, problem)
        else:
            self.finish(sequence, ending.reason, ending.stop)

    def finish(self, sequence: Sequence, reason: FinishReason, stop: Stop | None = None) -> None:
        generation, scoring = sequence.generation, sequence.scoring
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
            prompt_logprobs=tuple(scoring.results) if isinstance(scoring, PromptScoring) else None,
        )
        self.replies.append(unsent(sequence, finish))

    def finish_part(self, sequence: Sequence) -> None:
        """One sequence of a score, one input of an embedding; the last one answers the request."""
        group = sequence.group
        assert group is not None
        sequence.first_token = self._clock()
        self._leave(sequence)
        self._open[group.id] = [other for other in self._open[group.id] if other is not sequence]
        group.end(sequence, self._usage(sequence))
        if not group.left:
            self._tally.finish(sequence.targets, group.usage)
            del self._open[group.id]
            self.replies.append(group.reply())

    # --- before its time ---

    def abort(self, request_id: str) -> None:
        """Ends the request's sequences. An id that is not open was answered already: nothing to do."""
        sequences = self._open.get(request_id)
        if sequences is None:
            return
        if sequences[0].group is not None:
            self.fail(request_id, Aborted(f"Request {request_id!r} was aborted."))
            return
        if sequences[0] in self._queue:
            self._queue.remove(sequences[0])
        self._grammars.forget(sequences[0])
        self.finish(sequences[0], "abort")

    def abort_all(self) -> None:
        for request_id in list(self._open):
            self.abort(request_id)

    def fail(self, request_id: str, error: PalmetteError) -> None:
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
        self.replies.append(Failed(request_id, error.info()))

    def fail_all_of(self, concerned: Iterable[Sequence], error: InternalError) -> None:
        """The requests of these sequences; one that was answered before the fault only goes."""
        answered = {request_id for reply in self.replies if (request_id := _ended(reply)) is not None}
        for request_id in dict.fromkeys(sequence.request_id for sequence in concerned):
            if request_id in answered:
                self._open.pop(request_id, None)
            else:
                self.fail(request_id, error)

    def longest(self) -> list[tuple[str, int]]:
        """Each request's id, and the tokens of its longest sequence at most."""
        return [(name, max(each.longest for each in sequences)) for name, sequences in self._open.items()]

    def _leave(self, sequence: Sequence) -> None:
        """Out of the running set, where it is there; committed KV goes to the tree."""
        if sequence in self._running:
            self._running.leave(sequence, keep_committed=True)

    def _usage(self, sequence: Sequence) -> Usage:
        """Of a sequence that ends now, counted where it ran."""
        usage = sequence.usage(self._clock())
        if sequence.admitted is not None:
            self._tally.add(usage)
        return usage


def _ended(reply: Reply) -> str | None:
    """The id of the request that it is the last answer to."""
    if isinstance(reply, Scored | Embedded | Failed) or (isinstance(reply, Generated) and reply.finish is not None):
        return reply.id
    return None
