"""Products kept in float32: logits. Rounding them to bfloat16 would tie tokens that aren't tied.

A float16 weight goes to FBGEMM where torch has it: half the bytes of float32, summed and returned in float32, each row
by itself (checked before use). Elsewhere, and for other dtypes, the weight is widened to float32 for the linear.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from palmette.kernels.portable.linear import Linear
from palmette.kernels.portable.row_blocks import BASE_ROWS, probe, same_bits

CHECKED_ROWS = 2 * BASE_ROWS


class PortableHead:
    """x [T, K] float32 → [T, N] float32."""

    def __init__(self, weight: Tensor, linear: Linear) -> None:
        self._linear = linear
        self._packed: Any = None
        self._weight: Tensor | None = None
        if weight.dtype == torch.float16 and half_products(weight.shape[1], torch.get_num_threads()):
            self._packed = torch.ops.quantized.linear_prepack_fp16(weight.float(), None)
        else:
            self._weight = weight.float()

    def __call__(self, x: Tensor) -> Tensor:
        if self._weight is None:
            product: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self._packed)
            return product
        return self._linear(x, self._weight)


@cache
def half_products(width: int, threads: int) -> bool:
    """Whether torch's float16-weight product is here and gives a row the same bits in every batch."""
    if torch.backends.quantized.engine not in ("x86", "fbgemm"):
        return False
    x = probe(CHECKED_ROWS, width, torch.float32)
    packed = torch.ops.quantized.linear_prepack_fp16(probe(BASE_ROWS, width, torch.float32) / 64, None)
    whole = torch.ops.quantized.linear_dynamic_fp16(x, packed)
    return all(
        same_bits(torch.ops.quantized.linear_dynamic_fp16(x[start : start + rows], packed), whole[start : start + rows])
        for rows in range(1, CHECKED_ROWS)
        for start in (0, CHECKED_ROWS - rows)
    )
