"""Fixed row counts of a matrix product: how a row keeps its bits in any batch (design rule 1b).

A BLAS picks its inner kernel by shape, so a product of T rows gives a row other bits than a product of one. Here every
product has one of a few row counts, and a row count is used only after it was seen to give each row the bits that the
base count gives. What was verified decides speed alone, never bits. Used by the portable linear and attention.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

BASE_ROWS = 16
CANDIDATE_ROWS = (4, 8, 16, 32, 64, 128, 256)
CALL_COST_ROWS = 32  # what starting a product costs, in rows (measured: 576 → 3072, bfloat16)

Product = Callable[[Tensor], Tensor]  # [rows, K] → [rows, N], or batches of those


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal bit by bit: NaNs count as equal to themselves, zeros of unlike sign don't."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def probe(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Random rows of very different magnitudes, the same at every start."""
    generator = torch.Generator().manual_seed(0x5EED)
    magnitudes = torch.exp(torch.randn(rows, 1, generator=generator) * 3)
    return (torch.randn(rows, width, generator=generator) * magnitudes).to(dtype)


def verified_rows(
    product: Product, rows: Tensor, candidates: tuple[int, ...] = CANDIDATE_ROWS, base: int = BASE_ROWS
) -> tuple[int, ...]:
    """The candidates, ascending, whose product gives every one of `rows` [n, K] the bits of the base count's.

    `rows` hold at least the largest candidate's count, a multiple of it and of the base. The base is always in.
    """
    expected = torch.cat([product(part) for part in rows.split(base)])
    good = {base}
    for count in candidates:
        found = torch.cat([product(part) for part in rows.split(count)])
        if same_bits(found, expected):
            good.add(count)
    return tuple(sorted(good))


@cache
def decompose(rows: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Row counts out of `sizes` (ascending) that hold `rows` rows at the least cost, largest first."""
    largest = sizes[-1]
    if rows > 2 * largest:
        whole = rows // largest - 1
        return (largest,) * whole + decompose(rows - whole * largest, sizes)
    best: tuple[int, ...] = ()
    best_cost = float("inf")
    for size in sizes:
        rest = decompose(rows - size, sizes) if size < rows else ()
        cost = CALL_COST_ROWS * (1 + len(rest)) + size + sum(rest)
        if cost < best_cost:
            best, best_cost = tuple(sorted((size, *rest), reverse=True)), cost
    return best
