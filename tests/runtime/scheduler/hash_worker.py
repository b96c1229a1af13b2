"""A worker without a model, for tests of the scheduler: its "KV" is the token that was written to a slot.

The logits of a position (the first of them are its hidden state) are a hash of all tokens that are read through the
row's block table, so a wrong page, a stale table, a missed copy or a wrong position gives another token. A slot that
was never written is an error.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from palmette.runtime.plan import Int32, SamplePlan, StepPlan, StepResult, decode, encode
from palmette.runtime.worker.sampler import sample

STATE = 8  # numbers in a hidden state


@dataclass(frozen=True)
class Handle:
    step: int
    logits: npt.NDArray[np.float32]
    states: npt.NDArray[np.float32]


class HashWorker:
    def __init__(self, pages: int, page_size: int, *, slots: int, context: int, vocabulary: int) -> None:
        self._page_size = page_size
        self._vocabulary = vocabulary
        self.kv = np.full((pages * page_size, 2), -1, dtype=np.int64)  # token, position
        self._tables = np.full((slots, -(-context // page_size)), -1, dtype=np.int64)
        self.steps: list[StepPlan] = []
        self.fail_at: set[int] = set()
        self.poison: set[int] = set()  # tokens whose logits come out as NaN
        self._drawn: dict[int, list[int]] = {}  # by step
        self._failed = False  # the last step

    def forward(self, plan: StepPlan) -> Handle:
        plan = decode(encode(plan), StepPlan)
        self.steps.append(plan)
        behind_a_failure, self._failed = self._failed, plan.step in self.fail_at
        if self._failed:
            raise RuntimeError("the device is on fire")
        size = self._page_size
        for source, destination, slots in plan.page_copies.tolist():
            self.kv[destination * size : destination * size + slots] = self.kv[source * size : source * size + slots]
        writes = plan.table_writes
        self._tables[writes[:, 0], writes[:, 1]] = writes[:, 2]
        tokens = plan.tokens.copy()
        for at, step, index in plan.drawn.tolist():
            assert step == self.steps[-2].step, "only the step before can be running while one is planned"
            tokens[at] = self._drawn[step][index] if step in self._drawn else 0
        assert len(set(plan.write_slots.tolist())) == len(plan.write_slots), "two tokens are written to one slot"
        self.kv[plan.write_slots, 0] = tokens
        self.kv[plan.write_slots, 1] = plan.positions
        logits, states = (self._all_logits(plan, at, behind_a_failure) for at in (plan.logits_at, plan.states_at))
        return Handle(plan.step, logits, states[:, :STATE])

    def _all_logits(self, plan: StepPlan, places: Int32, behind_a_failure: bool) -> npt.NDArray[np.float32]:
        row_of = np.searchsorted(plan.row_starts, places, side="right") - 1
        logits = [
            self._logits(plan, int(row), int(at), behind_a_failure) for row, at in zip(row_of, places, strict=True)
        ]
        return np.array(logits, dtype=np.float32).reshape(len(logits), self._vocabulary)

    def _logits(self, plan: StepPlan, row: int, at: int, behind_a_failure: bool) -> npt.NDArray[np.float32]:
        position = int(plan.positions[at])
        where = np.arange(position + 1)
        table = self._tables[plan.row_slots[row]]
        read = self.kv[table[where // self._page_size] * self._page_size + where % self._page_size]
        if behind_a_failure and (read[:, 1] != where).any():  # a row planned as if that step had succeeded
            return np.full(self._vocabulary, np.nan, dtype=np.float32)
        assert (read[:, 1] == where).all(), f"row {row} reads KV of other positions: {read[:, 1].tolist()}"
        digest = hashlib.blake2b(read[:, 0].tobytes(), digest_size=8).digest()
        if int(read[-1, 0]) in self.poison:
            return np.full(self._vocabulary, np.nan, dtype=np.float32)
        generator = np.random.default_rng(int.from_bytes(digest, "little"))
        return generator.standard_normal(self._vocabulary, dtype=np.float32) * 2

    def sample(self, handle: Handle, plan: SamplePlan) -> StepResult:
        drawn = sample(handle.logits, decode(encode(plan), SamplePlan))
        self._drawn[handle.step] = drawn.tokens.tolist()
        return StepResult(
            step=handle.step,
            tokens=drawn.tokens,
            logprobs=drawn.logprobs,
            top=drawn.top,
            scored_logprobs=drawn.scored_logprobs,
            scored_top=drawn.scored_top,
            states=handle.states,
            sample_errors=drawn.errors,
        )
