"""Block tables of a worker, and a StepPlan turned into the kernels' Batch. State follows from the plans alone."""

from __future__ import annotations

import numpy as np

from palmette.kernels.protocol import Batch
from palmette.runtime.plan import StepPlan


class BlockTables:
    """[slots, pages of the longest sequence]. Entries beyond a sequence's pages are those of former ones."""

    def __init__(self, slots: int, context_pages: int, page_size: int) -> None:
        self._tables = np.zeros((slots, context_pages), dtype=np.int32)
        self._page_size = page_size

    def apply(self, plan: StepPlan) -> None:
        writes = plan.table_writes
        self._tables[writes[:, 0], writes[:, 1]] = writes[:, 2]

    def batch(self, plan: StepPlan) -> Batch:
        pages = int(plan.positions.max()) // self._page_size + 1
        return Batch(
            tokens=plan.tokens,
            positions=plan.positions,
            write_slots=plan.write_slots,
            row_starts=plan.row_starts,
            block_tables=self._tables[plan.row_slots, :pages],
            logits_at=plan.logits_at,
            page_size=self._page_size,
        )
