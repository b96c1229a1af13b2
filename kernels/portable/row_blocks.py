"""Fixed row counts of a matrix product: how a row keeps its bits in any batch (design rule 1b).

A BLAS picks its inner kernel by shape, so a product of T rows gives a row other bits than a product of one. Here every
product has one of a few row counts, and a row count is used only after it was seen to give each row the bits that the
base count gives. What was verified decides speed alone, never bits. Used by the portable linear and attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

BASE_ROWS = 16
CANDIDATE_ROWS = (4, 8, 16, 32, 64, 128, 256)
PROBE_ROWS = 256 + BASE_ROWS
CALL_COST_ROWS = 32  # what starting a product costs, in rows (measured: 576 → 3072, bfloat16)

Product = Callable[[Tensor], Tensor]  # [rows, K] → [rows, N], or batches of those


def aligned(x: Tensor) -> Tensor:
    """x, contiguous and starting at a multiple of 64 bytes, as torch allocates."""
    return x.contiguous() if x.data_ptr() % 64 == 0 else x.clone(memory_format=torch.contiguous_format)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal bit by bit: NaNs count as equal to themselves, zeros of unlike sign don't."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def probe(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Random rows of very different magnitudes, the same at every start."""
    generator = torch.Generator().manual_seed(0x5EED)
    magnitudes = torch.exp(torch.randn(rows, 1, generator=generator) * 3)
    return (torch.randn(rows, width, generator=generator) * magnitudes).to(dtype)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch's operators on `count` threads."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Verified:
    """Row counts, ascending, that give a row one thread's base bits when computed on `threads` threads."""

    counts: tuple[int, ...]
    threads: int


def verify(gives_base_bits: Callable[[int], bool], candidates: tuple[int, ...], base: int) -> Verified:
    """Tries the candidates on torch's threads, then on one: some BLAS split narrow products among many threads.

    No counts where not even the base gives its own bits at every place in a product.
    """
    for count in sorted({torch.get_num_threads(), 1}, reverse=True):
        with threads(count):
            good = tuple(rows for rows in candidates if gives_base_bits(rows))
        if base in good:
            return Verified(good, count)
    return Verified((), 1)


def places(total: int, count: int) -> tuple[slice, ...]:
    """Where a candidate is tried: both ends, and with every row at another place than in the base's products.

    Rows are copied from there to aligned memory: a BLAS may also look at how a row lies in memory, which then shows.
    """
    odd = min(3, total - count)
    return slice(0, count), slice(odd, odd + count), slice(total - count, total)


def verified_rows(product: Product, rows: Tensor) -> Verified:
    """The row counts whose products of `rows` [n, K] give a row the bits of the base count's. A few products each.

    n is a multiple of the base and larger than every candidate.
    """
    with threads(1):
        expected = torch.cat([product(part) for part in torch.split(rows, BASE_ROWS)])

    def gives_base_bits(count: int) -> bool:
        return all(same_bits(product(rows[part].clone()), expected[part]) for part in places(len(rows), count))

    return verify(gives_base_bits, CANDIDATE_ROWS, BASE_ROWS)


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
