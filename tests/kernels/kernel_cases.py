"""Batches, pages and comparisons for the kernel tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from palmette.kernels.protocol import Batch


@dataclass
class Sequences:
    """Whole sequences with their K, V and queries: what a request looks like however it is cut and stored."""

    q: list[Tensor]  # [length, heads, head_dim]
    k: list[Tensor]  # [length, kv_heads, head_dim]
    v: list[Tensor]

    @classmethod
    def random(
        cls,
        lengths: Sequence[int],
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        seed: int = 0,
        scale: float = 1.0,
    ) -> Sequences:
        generator = torch.Generator().manual_seed(seed)

        def draw(count: int) -> list[Tensor]:
            return [(torch.randn(length, count, head_dim, generator=generator) * scale).to(dtype) for length in lengths]

        return cls(draw(heads), draw(kv_heads), draw(kv_heads))

    def paged(
        self, rows: Sequence[tuple[int, int, int]], page_size: int, seed: int = 0
    ) -> tuple[Batch, Tensor, Tensor, Tensor]:
        """Rows (sequence, first, end) as a batch, its queries, and the poisoned pages with all KV before each end."""
        generator = torch.Generator().manual_seed(seed)
        needed = [-(-end // page_size) for _, _, end in rows]
        shape = (sum(needed) + 3, page_size, *self.k[0].shape[1:])
        keys = torch.full(shape, float("nan"), dtype=self.k[0].dtype)
        values = keys.clone()
        shuffled = torch.randperm(shape[0], generator=generator)
        tables = torch.zeros(len(rows), max(needed), dtype=torch.int64)
        starts, slots = [0], []
        for row, (sequence, first, end) in enumerate(rows):
            tables[row, : needed[row]] = shuffled[sum(needed[:row]) : sum(needed[: row + 1])]
            places = torch.arange(end)
            slot = tables[row, places // page_size] * page_size + places % page_size
            keys.flatten(0, 1)[slot] = self.k[sequence][:end]
            values.flatten(0, 1)[slot] = self.v[sequence][:end]
            starts.append(starts[-1] + end - first)
            slots.append(slot[first:])
        total = starts[-1]
        batch = Batch(
            tokens=np.zeros(total, np.int32),
            positions=np.concatenate([np.arange(first, end, dtype=np.int32) for _, first, end in rows]),
            write_slots=torch.cat(slots).int().numpy(),
            row_starts=np.array(starts, np.int32),
            block_tables=tables.int().numpy(),
            logits_at=np.zeros(0, np.int32),
            page_size=page_size,
        )
        return batch, torch.cat([self.q[s][first:end] for s, first, end in rows]), keys, values
