"""Plain torch for any CPU, bit-exact in any batch (design rule 1). Made by kernels/select.py.

Elementwise work is made of operations that round each element by itself (add, multiply, divide, square root) and of
torch's exp, which has no scalar tail; sums run along a row's own last dimension. silu and sigmoid are avoided: their
vector body and scalar tail differ in bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from palmette.kernels.portable.attention import PortableAttention, Scratch
from palmette.kernels.portable.head import PortableHead
from palmette.kernels.portable.linear import Linear
from palmette.kernels.portable.row_blocks import BASE_ROWS
from palmette.kernels.portable.tiles import BASE_TILE_ROWS, BLOCK, TileShapes, plan_groups
from palmette.kernels.protocol import Batch


class PortableKernels:
    """See kernels/protocol.py for shapes."""

    name = "portable"

    def __init__(self) -> None:
        self.linear = Linear()
        self._shapes = TileShapes()
        self._scratch = Scratch()
        isa = torch.backends.cpu.get_cpu_capability()
        self.numerics = f"portable {isa} rows {BASE_ROWS} tile {BASE_TILE_ROWS} block {BLOCK}"

    def embedding(self, tokens: Tensor, weight: Tensor) -> Tensor:
        return weight.index_select(0, tokens)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        mean = (wide * wide).sum(-1, keepdim=True).div_(x.shape[-1])
        return (wide / mean.add_(eps).sqrt_()).mul_(weight).to(x.dtype)

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.float().chunk(2, dim=-1)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        out = torch.empty_like(x)
        half = x.shape[-1] // 2
        out[..., :half] = (first * cos).sub_(second * sin)
        out[..., half:] = (second * cos).add_(first * sin)
        return out

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        wide = gate.float()
        return (wide / wide.neg().exp_().add_(1)).mul_(up).to(gate.dtype)

    def head(self, weight: Tensor) -> PortableHead:
        return PortableHead(weight, self.linear)

    def attention(self, batch: Batch, *, heads: int, kv_heads: int, head_dim: int, scale: float) -> PortableAttention:
        verified = self._shapes.verified(head_dim)
        groups = plan_groups(batch, heads // kv_heads, verified.counts)
        return PortableAttention(groups, scale, self._scratch, verified.threads)
