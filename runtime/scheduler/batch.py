"""Rows of one step, gathered into the flat arrays of a StepPlan and a SamplePlan.

Knows sequences and the plan's layout; decides nothing about who runs. Called by the core, once a step.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from palmette.radix_cache.pages import PageId
from palmette.runtime.messages.tokens import TOKEN_BYTES, unpack
from palmette.runtime.plan import Purpose, SamplePlan, StepPlan
from palmette.runtime.scheduler.sequence import Generation, Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """Positions [start, end) of `sequence` are computed in this step."""

    sequence: Sequence
    start: int
    end: int

    @property
    def samples(self) -> bool:
        generation = self.sequence.generation
        return generation is not None and generation.max_tokens > 0 and self.end == self.sequence.length

    @property
    def scored(self) -> range:
        """Positions whose token is scored by this row's logits (those of the position before)."""
        scoring = self.sequence.scoring
        if scoring is None:
            return range(0)
        return range(max(scoring.next, self.start + 1), min(self.end, self.sequence.prompt_length - 1) + 1)


@dataclass(slots=True)
class StepBatch:
    """What a step will do, while it is being decided. Table writes and copies take effect before the rows.

    `subject`: the sequence that the plan is deciding about; it falls with a fault, as those with rows do.
    """

    step: int
    rows: list[Row] = field(default_factory=list)
    copies: list[tuple[PageId, PageId, int]] = field(default_factory=list)
    table_writes: list[tuple[int, int, PageId]] = field(default_factory=list)
    tokens: int = 0
    subject: Sequence | None = None

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.tokens += row.end - row.start

    def plans(self, page_size: int) -> tuple[StepPlan, SamplePlan]:
        step = _StepArrays(page_size)
        sample = _SampleArrays()
        for row in self.rows:
            first = step.add(row)
            for position in row.scored:
                sample.score(step.need_logits(first + position - 1 - row.start), row.sequence, position)
            if row.samples:
                generation = row.sequence.generation
                assert generation is not None
                sample.draw(step.need_logits(first + row.end - 1 - row.start), generation)
        return step.plan(self), sample.plan()


class _StepArrays:
    """Plain lists, made into arrays once: most rows are single tokens, for which numpy costs more than it saves."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._slots: list[int] = []
        self._starts = [0]
        self._purposes: list[int] = []
        self._tokens: list[int] = []
        self._positions: list[int] = []
        self._write_slots: list[int] = []
        self._logits_at: list[int] = []

    def add(self, row: Row) -> int:
        """Index of the row's first token among the step's tokens."""
        sequence, page_size, pages = row.sequence, self._page_size, row.sequence.pages
        assert sequence.slot is not None
        first = self._starts[-1]
        self._slots.append(sequence.slot)
        self._purposes.append(_purpose(sequence))
        self._starts.append(first + row.end - row.start)
        self._tokens += unpack(sequence.tokens[TOKEN_BYTES * row.start : TOKEN_BYTES * row.end])
        self._positions += range(row.start, row.end)
        self._write_slots += [pages[at // page_size] * page_size + at % page_size for at in range(row.start, row.end)]
        return first

    def need_logits(self, token: int) -> int:
        """Index among the step's logits of the token at index `token` of the step."""
        if not self._logits_at or self._logits_at[-1] != token:
            self._logits_at.append(token)
        return len(self._logits_at) - 1

    def plan(self, batch: StepBatch) -> StepPlan:
        return StepPlan(
            step=batch.step,
            page_copies=_triples(batch.copies),
            table_writes=_triples(batch.table_writes),
            row_slots=_int32(self._slots),
            row_starts=_int32(self._starts),
            row_purposes=_int32(self._purposes),
            tokens=_int32(self._tokens),
            positions=_int32(self._positions),
            write_slots=_int32(self._write_slots),
            logits_at=_int32(self._logits_at),
        )


class _SampleArrays:
    def __init__(self) -> None:
        self._rows: list[int] = []
        self._drawn: list[Generation] = []
        self._scored_rows: list[int] = []
        self._scored_targets: list[int] = []
        self._scored_tops: list[int] = []

    def score(self, logits_row: int, sequence: Sequence, position: int) -> None:
        assert sequence.scoring is not None
        self._scored_rows.append(logits_row)
        self._scored_targets.append(sequence.token(position))
        self._scored_tops.append(sequence.scoring.top_count)

    def draw(self, logits_row: int, generation: Generation) -> None:
        self._rows.append(logits_row)
        self._drawn.append(generation)

    def plan(self) -> SamplePlan:
        drawn = self._drawn
        params = [generation.params for generation in drawn]
        biases = [_bias(generation) for generation in drawn]
        seen = [generation.seen or {} for generation in drawn]
        return SamplePlan(
            logits_rows=_int32(self._rows),
            temperatures=_float32([p.temperature for p in params]),
            top_ks=_int32([p.top_k or 0 for p in params]),
            top_ps=_float32([p.top_p for p in params]),
            min_ps=_float32([p.min_p for p in params]),
            seeds=np.array([g.seed & 0xFFFF_FFFF_FFFF_FFFF for g in drawn], dtype=np.uint64),
            output_indices=np.array([g.output_index for g in drawn], dtype=np.int64),
            repetitions=_float32([p.repetition_penalty for p in params]),
            frequencies=_float32([p.frequency_penalty for p in params]),
            presences=_float32([p.presence_penalty for p in params]),
            bias_starts=_starts(biases),
            bias_tokens=_int32([token for bias in biases for token in bias]),
            bias_values=_float32([value for bias in biases for value in bias.values()]),
            seen_starts=_starts(seen),
            seen_tokens=_int32([token for tokens in seen for token in tokens]),
            seen_output_counts=_int32([count for tokens in seen for count in tokens.values()]),
            wants_logprob=np.array([p.logprobs for p in params], dtype=np.bool_),
            top_counts=_int32([p.top_logprobs if p.logprobs else 0 for p in params]),
            scored_rows=_int32(self._scored_rows),
            scored_targets=_int32(self._scored_targets),
            scored_top_counts=_int32(self._scored_tops),
        )


def _purpose(sequence: Sequence) -> Purpose:
    if sequence.decoding:
        return Purpose.DECODE
    return Purpose.SCORE if sequence.group is not None else Purpose.PREFILL


def _bias(generation: Generation) -> dict[int, float]:
    """Logit bias of the next sample; ids that would end the output are barred before min_tokens."""
    bias = generation.params.logit_bias
    if generation.outputs >= generation.params.min_tokens:
        return bias
    return {**bias, **dict.fromkeys(generation.barred, -np.inf)}


def _int32(values: Seq[int]) -> npt.NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def _float32(values: Seq[float]) -> npt.NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def _triples(values: Seq[tuple[int, int, int]]) -> npt.NDArray[np.int32]:
    return np.array(values, dtype=np.int32).reshape(len(values), 3)


def _starts(parts: Seq[dict[int, int]] | Seq[dict[int, float]]) -> npt.NDArray[np.int32]:
    starts = np.zeros(len(parts) + 1, dtype=np.int32)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return starts
