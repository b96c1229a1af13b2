"""Embeddings on the scheduler's side: the hidden states of a sequence's tokens, gathered into one vector.

States are added one by one in the order of their positions, in float64, so that the vector doesn't depend on how the
prompt was cut into chunks, what else was in a step, or whether the sequence was retracted. Knows nothing of steps.
Made by intake, filled by the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from palmette.runtime.messages.requests import PoolingKind

States: TypeAlias = npt.NDArray[np.float32]


@dataclass(slots=True)
class Pooling:
    """The mean of the states of positions `first` … prompt length - 1. Those before `next` are in `sums` already."""

    first: int
    next: int = field(init=False)
    sums: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        self.next = self.first

    @classmethod
    def of(cls, kind: PoolingKind, prompt_length: int) -> Pooling:
        return cls(0 if kind == "mean" else prompt_length - 1)

    @property
    def matchable(self) -> int:
        """Length of the key to match: the state of position `next` is not kept by the cache, nor are those behind."""
        return self.next + 1

    def wanted(self, start: int, end: int) -> range:
        """Positions whose states are wanted of a row that computes [start, end)."""
        first = max(self.next, start)
        return range(first, max(first, end))

    def take(self, positions: range, states: States) -> str | None:
        """Adds the states [positions, hidden size]. Why they are of no use, where they aren't."""
        if not positions:
            return None
        assert positions.start == self.next, f"states of {positions} behind {self.next}"
        if not np.isfinite(states).all():
            return f"The model's hidden states at positions {positions.start} to {positions[-1]} have no finite values."
        if self.sums is None:
            self.sums = np.zeros(states.shape[1], np.float64)
        for state in states:
            self.sums += state
        self.next = positions.stop
        return None

    def vector(self) -> bytes:
        """The mean, float32 little-endian."""
        assert self.sums is not None, "no state was taken"
        return (self.sums / (self.next - self.first)).astype("<f4").tobytes()
