"""Rows of one step, gathered into the flat arrays of a StepPlan and a SamplePlan.

Knows sequences and the plan's layout; decides nothing about who runs. Called by the core, once a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from struct import Struct
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from palmette.radix_cache.pages import PageId
from palmette.runtime.messages.tokens import TOKEN_BYTES
from palmette.runtime.plan import NO_TRIPLES, SAMPLE, Purpose, SamplePlan, StepPlan, UInt32
from palmette.runtime.scheduler.constrained import Constrained, fill_all
from palmette.runtime.scheduler.sequence import Generation, Sequence

V = TypeVar("V", int, float)

# Most steps have no bias, no penalty, no score: shared, and never written to.
NONE = np.zeros(0, dtype=np.int32)
NO_FLOATS = np.zeros(0, dtype=np.float32)
NO_SAMPLES = np.zeros(0, dtype=SAMPLE)
NO_MASKS = np.zeros((0, 0), dtype=np.uint32)

NO_POSITIONS = range(0)
PREFILL, DECODE, SCORE, EMBED = map(int, Purpose)  # numpy takes plain numbers in half the time

_DRAWN = Struct("<qii")  # the fields of a SAMPLE that differ from token to token


class Row:
    """Positions [start, end) of `sequence` are computed in this step. The last token may still have to be drawn, by
    the step that runs while this one is planned.

    `decodes`: it computes the newest output token alone. `scored`: positions at which its logits (those of the position
    before) score tokens. `pooled`: positions whose hidden states are wanted. `samples`: a token is drawn from its last
    logits, which are computed where `has_logits`.
    """

    __slots__ = ("decodes", "end", "has_logits", "pooled", "samples", "scored", "sequence", "start")

    def __init__(self, sequence: Sequence, start: int, end: int) -> None:
        generation, scoring, pooling = sequence.generation, sequence.scoring, sequence.pooling
        self.sequence, self.start, self.end = sequence, start, end
        self.samples = generation is not None and generation.max_tokens > 0 and end >= sequence.length
        self.has_logits = self.samples
        self.decodes = self.samples and start == end - 1 and start >= sequence.prompt_length
        self.scored = self.pooled = NO_POSITIONS
        if scoring is not None:
            self.scored = range(max(scoring.next, start + 1), min(end + 1, scoring.end))
        if pooling is not None:
            self.pooled = pooling.wanted(start, end)

    @property
    def scores(self) -> int:
        """Tokens that are scored."""
        scoring = self.sequence.scoring
        return 0 if scoring is None else sum([len(scoring.tokens(position)) for position in self.scored])


@dataclass(slots=True)
class StepBatch:
    """What a step will do, while it is being decided. Table writes and copies take effect before the rows.

    `subject`: the sequence that the plan is deciding about; it falls with a fault, as those with rows do, and those
    admitted, whose copies the step makes.
    """

    step: int
    rows: list[Row] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    over: frozenset[Sequence] = frozenset()  # those that have ended since it was planned: their results are dropped
    copies: list[tuple[PageId, PageId, int]] = field(default_factory=list)
    table_writes: list[tuple[int, int, PageId]] = field(default_factory=list)
    tokens: int = 0
    subject: Sequence | None = None

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.tokens += row.end - row.start

    @property
    def constrained(self) -> int:
        """Samples under a grammar."""
        generations = [row.sequence.generation for row in self.rows if row.samples]
        return sum([generation is not None and generation.constrained is not None for generation in generations])

    def samples(self) -> dict[Sequence, int]:
        """Each sequence that is given a token, and the index of its sample."""
        return {row.sequence: index for index, row in enumerate(row for row in self.rows if row.samples)}

    def settle(self, over: frozenset[Sequence]) -> None:
        """Every token before the step's is there now: nothing is drawn for those that are `over`, nor where a grammar
        has forced what follows. What a row computes stays."""
        self.over = over
        for row in self.rows:
            if row.samples and (row.sequence in over or row.sequence.length > row.end):
                row.samples = False
                if row.sequence not in over:
                    row.sequence.drawing -= 1

    def step_plan(self, page_size: int, before: StepBatch | None = None) -> StepPlan:
        """`before`: the step that runs meanwhile, to which tokens that it draws are left."""
        arrays = _StepArrays(page_size, before)
        arrays.add(self.rows)
        return arrays.plan(self)

    def sample_plan(self) -> SamplePlan:
        """Made when every token before the step's is there: penalties, bias and masks depend on them."""
        arrays = _SampleArrays()
        logits_row = 0  # each position that is scored and each sample has logits of its own, in this order
        for row in self.rows:
            for position in row.scored:
                arrays.score(logits_row, row.sequence, position)
                logits_row += 1
            if row.samples:
                generation = row.sequence.generation
                assert generation is not None
                arrays.draw(logits_row, generation)
            logits_row += row.has_logits
        return arrays.plan()


class _StepArrays:
    """Plain lists, made into arrays once: most rows are single tokens, for which numpy costs more than it saves."""

    def __init__(self, page_size: int, before: StepBatch | None) -> None:
        self._page_size = page_size
        self._before = before
        self._samples: dict[Sequence, int] | None = None
        self._slots: list[int] = []
        self._starts = [0]
        self._purposes: list[int] = []
        self._tokens = bytearray()
        self._positions: list[int] = []
        self._write_slots: list[int] = []
        self._logits_at: list[int] = []
        self._states_at: list[int] = []
        self._drawn: list[tuple[int, int, int]] = []

    def add(self, rows: Iterable[Row]) -> None:
        page_size, starts, tokens, logits_at = self._page_size, self._starts, self._tokens, self._logits_at
        for row in rows:
            sequence, start, end, pages = row.sequence, row.start, row.end, row.sequence.pages
            assert sequence.slot is not None
            first = starts[-1]
            starts.append(first + end - start)
            self._slots.append(sequence.slot)
            tokens += sequence.tokens[TOKEN_BYTES * start : TOKEN_BYTES * end]
            if row.decodes:  # most rows
                self._purposes.append(DECODE)
                self._positions.append(start)
                self._write_slots.append(pages[start // page_size] * page_size + start % page_size)
                if len(tokens) == TOKEN_BYTES * first:
                    self._await_token(sequence)
            else:
                self._purposes.append(_purpose(sequence))
                self._positions += range(start, end)
                self._write_slots += [pages[at // page_size] * page_size + at % page_size for at in range(start, end)]
                logits_at += [first + position - 1 - start for position in row.scored]
                self._states_at += [first + position - start for position in row.pooled]
            if row.samples:
                logits_at.append(starts[-1] - 1)

    def _await_token(self, sequence: Sequence) -> None:
        """The row's token is being drawn by the step before."""
        assert self._before is not None
        if self._samples is None:
            self._samples = self._before.samples()
        self._drawn.append((self._starts[-1] - 1, self._before.step, self._samples[sequence]))
        self._tokens += bytes(TOKEN_BYTES)

    def plan(self, batch: StepBatch) -> StepPlan:
        return StepPlan(
            step=batch.step,
            page_copies=_triples(batch.copies),
            table_writes=_triples(batch.table_writes),
            row_slots=_int32(self._slots),
            row_starts=_int32(self._starts),
            row_purposes=_int32(self._purposes),
            tokens=np.frombuffer(self._tokens, dtype="<i4"),
            positions=_int32(self._positions),
            write_slots=_int32(self._write_slots),
            logits_at=_int32(self._logits_at),
            states_at=_int32(self._states_at),
            drawn=_triples(self._drawn),
        )


class _SampleArrays:
    """Samples as the bytes of their records: one conversion for all of them."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._biases: dict[int, dict[int, float]] = {}  # by sample, where there are any
        self._seen: dict[int, dict[int, int]] = {}
        self._scored: list[tuple[int, int, int]] = []
        self._constrained: list[Constrained] = []

    def score(self, logits_row: int, sequence: Sequence, position: int) -> None:
        scoring = sequence.scoring
        assert scoring is not None
        self._scored += [(logits_row, token, scoring.top_count) for token in scoring.tokens(position)]

    def draw(self, logits_row: int, generation: Generation) -> None:
        mask = 0
        if generation.constrained is not None:
            self._constrained.append(generation.constrained)
            mask = len(self._constrained)
        self._records.append(generation.record + _DRAWN.pack(generation.output_index, logits_row, mask))
        bias = _bias(generation)
        if bias:
            self._biases[len(self._records) - 1] = bias
        if generation.seen:
            self._seen[len(self._records) - 1] = generation.seen

    def plan(self) -> SamplePlan:
        bias_starts, bias = _csr(self._biases, len(self._records))
        seen_starts, seen = _csr(self._seen, len(self._records))
        return SamplePlan(
            samples=np.frombuffer(b"".join(self._records), dtype=SAMPLE) if self._records else NO_SAMPLES,
            bias_starts=bias_starts,
            bias_tokens=_int32([token for token, _ in bias]),
            bias_values=_float32([value for _, value in bias]),
            seen_starts=seen_starts,
            seen_tokens=_int32([token for token, _ in seen]),
            seen_output_counts=_int32([count for _, count in seen]),
            masks=self._masks(),
            scored=_triples(self._scored),
        )

    def _masks(self) -> UInt32:
        constrained = self._constrained
        if not constrained:
            return NO_MASKS
        masks = np.empty((len(constrained), constrained[0].words), dtype=np.uint32)
        fill_all(constrained, masks)
        return masks


def _purpose(sequence: Sequence) -> int:
    """Of a row that doesn't decode."""
    if sequence.group is None:
        return PREFILL
    return SCORE if sequence.pooling is None else EMBED


def _bias(generation: Generation) -> dict[int, float]:
    """Logit bias of the next sample; ids that would end the output are barred before min_tokens."""
    bias = generation.params.logit_bias
    if generation.outputs >= generation.params.min_tokens:
        return bias
    return {**bias, **dict.fromkeys(generation.barred, -np.inf)}


def _int32(values: Seq[int]) -> npt.NDArray[np.int32]:
    return NONE if not values else np.array(values, dtype=np.int32)


def _float32(values: Seq[float]) -> npt.NDArray[np.float32]:
    return NO_FLOATS if not values else np.array(values, dtype=np.float32)


def _triples(values: Seq[tuple[int, int, int]]) -> npt.NDArray[np.int32]:
    return NO_TRIPLES if not values else np.array(values, dtype=np.int32)


def _csr(parts: dict[int, dict[int, V]], count: int) -> tuple[npt.NDArray[np.int32], list[tuple[int, V]]]:
    """Starts and entries of `count` parts; no starts where there is no entry."""
    if not parts:
        return NONE, []
    starts = np.zeros(count + 1, dtype=np.int32)
    np.cumsum([len(parts.get(index, ())) for index in range(count)], out=starts[1:])
    return starts, [entry for part in parts.values() for entry in part.items()]
