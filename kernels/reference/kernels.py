"""The meaning of every kernel, written to be read. The other backends are compared with it.

Computes in float32, or in the inputs' dtype where that is wider: tests hand it float64. One row at a time, so that a
row never depends on the others. Knows nothing of models or requests. Made by kernels/select.py and by tests.
"""

from __future__ import annotations

import torch
from torch import Tensor

from palmette.kernels.protocol import Batch


def wide(x: Tensor) -> Tensor:
    """x in float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class ReferenceKernels:
    """Obvious and slow."""

    name = "reference"
    numerics = "reference"

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        out = x.new_empty(x.shape[0], weight.shape[0])
        for t, row in enumerate(wide(x)):
            product = wide(weight) @ row
            out[t] = product if bias is None else product + wide(bias)
        return out

    def embedding(self, tokens: Tensor, weight: Tensor) -> Tensor:
        return weight[tokens]

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty_like(x)
        for t, row in enumerate(wide(x)):
            out[t] = row / torch.sqrt((row * row).mean() + eps) * wide(weight)
        return out

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = wide(x).chunk(2, dim=-1)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        return (wide(gate) / (1 + torch.exp(-wide(gate))) * wide(up)).to(gate.dtype)

    def head(self, weight: Tensor) -> ReferenceHead:
        return ReferenceHead(wide(weight))

    def attention(self, batch: Batch, *, heads: int, kv_heads: int, head_dim: int, scale: float) -> ReferenceAttention:
        return ReferenceAttention(batch, scale)


class ReferenceHead:
    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], self.weight.shape[0])
        for t, row in enumerate(x):
            out[t] = self.weight @ row
        return out


class ReferenceAttention:
    """Softmax attention by its definition, a token and a head at a time."""

    def __init__(self, batch: Batch, scale: float) -> None:
        self.batch = batch
        self.scale = scale

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        batch, out = self.batch, torch.empty_like(q)
        heads, kv_heads = q.shape[1], keys.shape[2]
        for row, length in enumerate(batch.row_lengths):
            start, end = batch.row_starts[row], batch.row_starts[row + 1]
            places = torch.arange(length)
            pages, offsets = batch.block_tables[row, places // batch.page_size], places % batch.page_size
            row_keys, row_values = wide(keys[pages, offsets]), wide(values[pages, offsets])
            for t in range(start, end):
                seen = length - (end - 1 - t)
                for head in range(heads):
                    kv_head = head * kv_heads // heads
                    scores = row_keys[:seen, kv_head] @ wide(q[t, head]) * self.scale
                    weights = torch.exp(scores - scores.max())
                    out[t, head] = weights / weights.sum() @ row_values[:seen, kv_head]
        return out
