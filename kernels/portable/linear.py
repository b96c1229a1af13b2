"""The portable linear: products of fixed, verified row counts, the last padded with zero rows."""

from __future__ import annotations

import torch
from torch import Tensor

from palmette.kernels.portable.row_blocks import CANDIDATE_ROWS, decompose, probe, verified_rows


class Linear:
    """x W^T + b with the same bits for a row in any batch. Remembers which row counts a shape may use."""

    def __init__(self) -> None:
        self._verified: dict[tuple[object, ...], tuple[int, ...]] = {}

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        rows = x.shape[0]
        out = x.new_empty(rows, weight.shape[0])
        start = 0
        for size in decompose(rows, self.row_counts(weight, bias)) if rows else ():
            part = x[start : start + size]
            if part.shape[0] == size:
                _product(part, weight, bias, out[start : start + size])
            else:
                padded = x.new_zeros(size, x.shape[1])
                padded[: part.shape[0]] = part
                out[start:] = _product(padded, weight, bias, x.new_empty(size, weight.shape[0]))[: part.shape[0]]
            start += size
        return out

    def row_counts(self, weight: Tensor, bias: Tensor | None = None) -> tuple[int, ...]:
        """The row counts that may be used for this shape; tried out when it is first met."""
        key = (weight.shape, weight.dtype, bias is None, torch.get_num_threads())
        found = self._verified.get(key)
        if found is None:
            rows = probe(CANDIDATE_ROWS[-1], weight.shape[1], weight.dtype)

            def product(part: Tensor) -> Tensor:
                return _product(part, weight, bias, part.new_empty(part.shape[0], weight.shape[0]))

            found = self._verified[key] = verified_rows(product, rows)
        return found


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)
