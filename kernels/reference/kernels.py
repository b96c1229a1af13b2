"""The meaning of every kernel, written to be read. The other backends are compared with it.

Computes in float32, or in the inputs' dtype where that is wider: tests hand it float64. One row at a time, so that a
row never depends on the others. Knows nothing of models or requests. Made by kernels/select.py and by tests.
"""

from __future__ import annotations

import torch
from torch import Tensor

from palmette.kernels.protocol import Batch, indices


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

    def attention(
        self,
        batch: Batch,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None = None,
        soft_cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> ReferenceAttention:
        """`window`: a row at position p sees positions > p - window; `sinks` [heads]: see ReferenceAttention."""
        return ReferenceAttention(batch, scale, window, soft_cap, sinks)


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

    def __init__(
        self, batch: Batch, scale: float, window: int | None, soft_cap: float | None, sinks: Tensor | None
    ) -> None:
        self.batch = batch
        self.scale = scale
        self.window = window
        self.soft_cap = soft_cap
        self.sinks = sinks

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        batch, out = self.batch, torch.empty_like(q)
        heads, kv_heads = q.shape[1], keys.shape[2]
        starts = batch.row_starts.tolist()
        for row, length in enumerate(batch.row_lengths.tolist()):
            start, end = starts[row], starts[row + 1]
            places = torch.arange(length)
            pages = indices(batch.block_tables[row])[places // batch.page_size]
            offsets = places % batch.page_size
            row_keys, row_values = wide(keys[pages, offsets]), wide(values[pages, offsets])
            for t in range(start, end):
                seen = length - (end - 1 - t)
                first = 0 if self.window is None else max(0, seen - self.window)
                for head in range(heads):
                    kv_head = head * kv_heads // heads
                    weights = self.weights(row_keys[first:seen, kv_head] @ wide(q[t, head]) * self.scale, head)
                    out[t, head] = weights @ row_values[first:seen, kv_head]
        return out

    def weights(self, scores: Tensor, head: int) -> Tensor:
        """The softmax of one token's scores, capped; a sink's share of it goes to no position."""
        if self.soft_cap is not None:
            scores = self.soft_cap * torch.tanh(scores / self.soft_cap)
        if self.sinks is not None:
            scores = torch.cat((scores, self.sinks[head : head + 1].to(scores.dtype)))
        weights = torch.exp(scores - scores.max())
        weights = weights / weights.sum()
        return weights if self.sinks is None else weights[:-1]
