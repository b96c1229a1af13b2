"""What a step that was computed comes to: KV that is real, tokens, scores, hidden states, requests that end.

The engine's core calls it with a batch and the worker's result. Knows nothing of how steps are planned or run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from palmette.runtime.messages.replies import TokenLogprob
from palmette.runtime.plan import StepResult
from palmette.runtime.scheduler.batch import Row, StepBatch
from palmette.runtime.scheduler.open_requests import OpenRequests
from palmette.runtime.scheduler.output import append, refusal, unsent
from palmette.runtime.scheduler.running import RunningSet
from palmette.runtime.scheduler.sequence import Sequence


class Outcome:
    def __init__(self, running: RunningSet, requests: OpenRequests, clock: Callable[[], float]) -> None:
        self._running = running
        self._requests = requests
        self._clock = clock

    def commit(self, batch: StepBatch, result: StepResult) -> None:
        """What each row computed becomes part of its sequence; one of no use fails its request alone."""
        tokens = result.tokens.tolist()
        sample = scored = pooled = 0
        for row in batch.rows:
            if row.sequence.slot is not None:  # else it fell with another row of its request
                problem = self._take_row(row, result, scored, pooled)
                if problem is None and row.samples:
                    problem = result.sample_errors.get(sample)
                if problem is not None:
                    self._requests.fail(row.sequence.request_id, refusal(row.sequence, problem))
                elif row.samples:
                    self._take_token(row, tokens[sample], result, sample)
                elif not row.decodes:  # else what follows its token was forced meanwhile
                    self._after_chunk(row.sequence)
            sample += row.samples
            scored += row.scores
            pooled += len(row.pooled)

    def _take_row(self, row: Row, result: StepResult, scored: int, pooled: int) -> str | None:
        """Its KV is real from here on. Why that is of no use, where it isn't. `scored`, `pooled`: where its scores and
        its hidden states begin."""
        sequence = row.sequence
        assert sequence.lease is not None
        if sequence.lease.tail is not None:
            sequence.lease.drop_tail()  # what this step copied from it has been written
        if not row.decodes:
            sequence.note_computed(row.start, row.end)
        sequence.computed = row.end
        if sequence.pooling is not None:
            return sequence.pooling.take(row.pooled, result.states[pooled : pooled + len(row.pooled)])
        return self._take_scores(row, result, scored) if row.scored else None

    def _take_scores(self, row: Row, result: StepResult, first: int) -> str | None:
        """Why there are none, where that is so."""
        scoring = row.sequence.scoring
        assert scoring is not None
        for position in row.scored:
            tokens = scoring.tokens(position)
            logprobs = result.scored_logprobs[first : first + len(tokens)].tolist()
            for token, logprob in zip(tokens, logprobs, strict=True):
                if not math.isfinite(logprob):
                    return f"The model's log-probability of token {token} at position {position} is {logprob}."
            tops = map(result.scored_top.at, range(first, first + len(tokens)))
            scoring.take(position, [TokenLogprob(*each) for each in zip(tokens, logprobs, tops, strict=True)])
            first += len(tokens)
        return None

    def _after_chunk(self, sequence: Sequence) -> None:
        """A chunk that did not sample: more to come, a part of a group that is complete, or a prompt without output."""
        if sequence.computed < sequence.length:
            self._running.insert(sequence)
        elif sequence.group is not None:
            self._requests.finish_part(sequence)
        else:
            self._requests.finish(sequence, "length")

    def _take_token(self, row: Row, token: int, result: StepResult, index: int) -> None:
        """A sampled token and those that a grammar forces behind it, or what closes the output in its place."""
        sequence = row.sequence
        generation = sequence.generation
        assert generation is not None
        now = self._clock()
        if sequence.first_token is None:
            sequence.first_token = now
        tokens = [token]
        if generation.constrained is not None:
            taken = generation.constrained.take(token, sequence.outputs_left)
            if taken is None:
                problem = f"Token {token} was drawn, which the grammar does not allow."
                self._requests.fail(sequence.request_id, refusal(sequence, problem))
                return
            tokens = taken
        drawn = None
        if generation.params.logprobs and tokens[:1] == [token]:
            drawn = TokenLogprob(token, float(result.logprobs[index]), result.top.at(index))
        ending = append(sequence, tokens, drawn)
        if ending is not None:
            self._requests.end(sequence, ending)
            return
        if now >= generation.next_reply:
            generation.next_reply = now + generation.reply_seconds
            self._requests.replies.append(unsent(sequence))
        if not row.decodes:
            self._running.insert(sequence)
