"""The portable linear: products of fixed, verified row counts, the last padded with zero rows."""

from __future__ import annotations

import torch
from torch import Tensor

from palmette.kernels.portable.row_blocks import PROBE_ROWS, Verified, aligned, decompose, probe, threads, verified_rows


class Linear:
    """x W^T + b with the same bits for a row in any batch. Remembers which row counts a shape may use."""

    def __init__(self) -> None:
        self._verified: dict[tuple[object, ...], Verified] = {}

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        out = x.new_empty(x.shape[0], weight.shape[0])
        if x.shape[0]:
            verified = self.verified(weight, bias)
            with threads(verified.threads):
                if verified.counts:
                    _in_parts(aligned(x), weight, bias, decompose(x.shape[0], verified.counts), out)
                else:
                    _summed(x, weight, bias, out)
        return out

    def verified(self, weight: Tensor, bias: Tensor | None = None) -> Verified:
        """The row counts that may be used for this shape; tried out when it is first met."""
        key = (weight.shape, weight.dtype, bias is None, torch.get_num_threads())
        found = self._verified.get(key)
        if found is None:
            rows = probe(PROBE_ROWS, weight.shape[1], weight.dtype)

            def product(part: Tensor) -> Tensor:
                return _product(part, weight, bias, part.new_empty(part.shape[0], weight.shape[0]))

            found = self._verified[key] = verified_rows(product, rows)
        return found


def _in_parts(x: Tensor, weight: Tensor, bias: Tensor | None, sizes: tuple[int, ...], out: Tensor) -> None:
    start = 0
    for size in sizes:
        part = x[start : start + size]
        if part.shape[0] == size:
            _product(part, weight, bias, out[start : start + size])
        else:
            padded = x.new_zeros(size, x.shape[1])
            padded[: part.shape[0]] = part
            out[start:] = _product(padded, weight, bias, x.new_empty(size, weight.shape[0]))[: part.shape[0]]
        start += size


def _summed(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Without a BLAS, for shapes (of a few columns) that no product gets right: each sum along its own dimension."""
    for row, target in zip(x, out, strict=True):
        total = (weight.float() * row).sum(-1)
        target.copy_(total if bias is None else total + bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)
