"""What every kernel backend offers, with one signature. reference/ defines the meaning, the others are compared.

Rows: a batch is a flat list of T tokens grouped into R rows (a row is one request's run of consecutive tokens in this
step). KV of a layer: [pages, page_size, kv_heads, head_dim] for keys and the same for values; a slot is
page × page_size + offset. Imports nothing of ours; numpy and torch only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """One step's inputs, on the host. A row's positions are consecutive, the last one is its length - 1."""

    tokens: Int32  # [T]
    positions: Int32  # [T]
    write_slots: Int32  # [T]
    row_starts: Int32  # [R + 1]: offsets into the tokens
    block_tables: Int32  # [R, most pages of a row]; beyond a row's own: some page, whichever
    logits_at: Int32  # [L]
    page_size: int
    states_at: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))  # [P]: whose hidden states are wanted

    @property
    def row_lengths(self) -> Int32:
        """[R]: KV length of each row after this step."""
        return self.positions[self.row_starts[1:] - 1] + 1


def indices(array: Int32) -> Tensor:
    """A batch's array as torch's operators want indices: int64."""
    return torch.from_numpy(array).long()


class Kernels(Protocol):
    """A backend. Every output row is a function of its own inputs alone (design rule 1): same bits in any batch."""

    name: str
    numerics: str  # what, beside sources and torch's build, decides bits (block sizes, instruction sets)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [T, K] times weight [N, K] transposed, plus bias [N] → [T, N] in x's dtype."""
        ...

    def embedding(self, tokens: Tensor, weight: Tensor) -> Tensor:
        """Rows of weight [vocabulary, hidden] → [T, hidden]."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x / sqrt(mean(x²) + eps) × weight over the last dimension, computed in float32."""
        ...

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotates x [T, heads, head_dim], halves layout; cos, sin [T, head_dim / 2] float32 from the position table."""
        ...

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) × up, elementwise, computed in float32."""
        ...

    def head(self, weight: Tensor) -> Head:
        """Prepares weight [N, K], float16 or float32, once, for products that are kept in float32 (logits)."""
        ...

    def attention(self, batch: Batch, *, heads: int, kv_heads: int, head_dim: int, scale: float) -> Attention:
        """Plans one step's attention; called once a step."""
        ...


class Head(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x [T, K] float32 times the weight transposed → [T, N] float32."""
        ...


class Attention(Protocol):
    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Causal attention of q [T, heads, head_dim] to each row's pages, as stored → [T, heads, head_dim]."""
        ...


def set_threads(count: int) -> None:
    """Threads of torch's operators in this process."""
    torch.set_num_threads(count)
