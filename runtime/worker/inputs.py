"""Block tables and newest tokens of a worker, and a StepPlan turned into the kernels' Batch. State follows from the
plans alone."""

from __future__ import annotations

import numpy as np

from palmette.kernels.protocol import Batch
from palmette.runtime.plan import Int32, StepPlan, StepResult


class BlockTables:
    """[slots, pages of the longest sequence]. Entries beyond a sequence's pages are those of former ones."""

    def __init__(self, slots: int, context_pages: int, page_size: int) -> None:
        self._tables = np.zeros((slots, context_pages), dtype=np.int32)
        self._page_size = page_size

    def apply(self, plan: StepPlan) -> None:
        writes = plan.table_writes
        self._tables[writes[:, 0], writes[:, 1]] = writes[:, 2]

    def batch(self, plan: StepPlan, tokens: Int32) -> Batch:
        """`tokens`: those of the plan, none left to be drawn."""
        pages = int(plan.positions.max()) // self._page_size + 1
        return Batch(
            tokens=tokens,
            positions=plan.positions,
            write_slots=plan.write_slots,
            row_starts=plan.row_starts,
            block_tables=self._tables[plan.row_slots, :pages],
            logits_at=plan.logits_at,
            states_at=plan.states_at,
            page_size=self._page_size,
        )


class DrawnTokens:
    """What the last step drew, for a plan that was made before that was known."""

    def __init__(self) -> None:
        self._last: StepResult | None = None

    def keep(self, result: StepResult) -> None:
        self._last = result

    def fill(self, plan: StepPlan) -> Int32:
        """The plan's tokens, the drawn ones in place. Those of a step that broke are 0: who referred to them has
        failed, and what these rows give is dropped."""
        if not len(plan.drawn):
            return plan.tokens
        tokens = plan.tokens.copy()
        if self._last is not None:
            drawn = plan.drawn[plan.drawn[:, 1] == self._last.step]
            tokens[drawn[:, 0]] = self._last.tokens[drawn[:, 2]]
        return tokens
