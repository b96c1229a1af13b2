"""Block tables of a worker, and a StepPlan turned into the kernels' Batch. State follows from the plans alone."""

from __future__ import annotations

import numpy as np
import torch

from palmette.kernels.protocol import Batch
from palmette.runtime.plan import StepPlan


class BlockTables:
    """[slots, pages of the longest sequence] int64 on the CPU."""

    def __init__(self, slots: int, context_pages: int, page_size: int) -> None:
        self._tables = np.zeros((slots, context_pages), dtype=np.int64)
        self._page_size = page_size

    def apply(self, plan: StepPlan) -> None:
        writes = plan.table_writes
        self._tables[writes[:, 0], writes[:, 1]] = writes[:, 2]

    def batch(self, plan: StepPlan) -> Batch:
        lengths = plan.positions[plan.row_starts[1:] - 1] + 1
        pages = -(-int(lengths.max()) // self._page_size)
        tables = self._tables[plan.row_slots, :pages]
        beyond = np.arange(pages) * self._page_size >= lengths[:, None]
        tables[beyond] = 0  # entries of the slot's former sequence
        return Batch(
            tokens=torch.from_numpy(plan.tokens.astype(np.int64)),
            positions=torch.from_numpy(plan.positions.astype(np.int64)),
            write_slots=torch.from_numpy(plan.write_slots.astype(np.int64)),
            row_starts=tuple(plan.row_starts.tolist()),
            row_lengths=tuple(lengths.tolist()),
            block_tables=torch.from_numpy(tables),
            logits_at=torch.from_numpy(plan.logits_at.astype(np.int64)),
            page_size=self._page_size,
        )
