"""Steps for the model tests: rows of token ids as a Batch on shuffled pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from palmette.kernels.protocol import Batch
from palmette.runtime.models.loading import Model


class Requests:
    """Sequences that are computed piece by piece on one store, each on its own shuffled pages."""

    def __init__(self, model: Model, sequences: Sequence[Sequence[int]], page_size: int, seed: int = 0) -> None:
        self.model = model
        self.sequences = [list(sequence) for sequence in sequences]
        needed = [-(-len(sequence) // page_size) for sequence in sequences]
        generator = torch.Generator().manual_seed(seed)
        shuffled = torch.randperm(sum(needed) + 2, generator=generator)
        self.tables = torch.zeros(len(sequences), max(needed), dtype=torch.int64)
        for row, pages in enumerate(needed):
            self.tables[row, :pages] = shuffled[sum(needed[:row]) : sum(needed[: row + 1])]
        self.page_size = page_size
        self.store = model.new_store(sum(needed) + 2, page_size, poison=True)
        self.done = [0] * len(sequences)

    def step(self, rows: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Computes the next `count` tokens of each (sequence, count) together → logits [count, vocabulary] each."""
        return self.step_with_states(rows)[0]

    def step_with_states(self, rows: Sequence[tuple[int, int]]) -> tuple[list[Tensor], list[Tensor]]:
        """Logits, and hidden states [count, hidden size] of each."""
        tokens, positions, slots, starts = [], [], [], [0]
        for sequence, count in rows:
            at = torch.arange(self.done[sequence], self.done[sequence] + count)
            tokens += self.sequences[sequence][self.done[sequence] : self.done[sequence] + count]
            positions.append(at)
            slots.append(self.tables[sequence, at // self.page_size] * self.page_size + at % self.page_size)
            self.done[sequence] += count
            starts.append(len(tokens))
        batch = Batch(
            tokens=np.array(tokens, np.int32),
            positions=torch.cat(positions).int().numpy(),
            write_slots=torch.cat(slots).int().numpy(),
            row_starts=np.array(starts, np.int32),
            block_tables=self.tables[[sequence for sequence, _ in rows]].int().numpy(),
            logits_at=np.arange(len(tokens), dtype=np.int32),
            page_size=self.page_size,
            states_at=np.arange(len(tokens), dtype=np.int32),
        )
        counts = [count for _, count in rows]
        logits, states = self.model.forward_with_states(batch, self.store)
        return list(torch.split(logits, counts)), list(torch.split(states, counts))


def whole(model: Model, sequence: Sequence[int], page_size: int = 16) -> Tensor:
    """Logits of every position, in one prefill."""
    return Requests(model, [sequence], page_size).step([(0, len(sequence))])[0]
