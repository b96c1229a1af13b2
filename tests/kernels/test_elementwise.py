"""rms_norm, rope, silu_mul and embedding: near the definition in float64, and the same bits in any batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from palmette.kernels.portable import PortableKernels
from palmette.kernels.portable.row_blocks import probe, same_bits, threads
from palmette.kernels.reference import ReferenceKernels

DTYPES = (torch.float32, torch.bfloat16)
ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2**-8}  # relative: a few steps of float32, one of bfloat16
WIDTHS = (48, 100, 576)
ROWS = 301
COUNTS = (*range(1, 40), 63, 64, 65, 127, 200, 300, 301)
PORTABLE, REFERENCE = PortableKernels(), ReferenceKernels()


def norm(x: Tensor) -> Tensor:
    weight = torch.linspace(0.1, 3, x.shape[-1]).bfloat16().to(x.dtype)
    return (REFERENCE if x.dtype == torch.float64 else PORTABLE).rms_norm(x, weight, 1e-5)


def silu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return (REFERENCE if x.dtype == torch.float64 else PORTABLE).silu_mul(gate, up)


def rope(x: Tensor) -> Tensor:
    """Every row at its own position, two heads; positions follow from the values so that a slice keeps them."""
    x = x[:, : x.shape[1] // 4 * 4]
    heads = x.view(len(x), 2, -1)
    angles = x[:, : heads.shape[-1] // 2].double()
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    cos, sin = torch.cos(angles).to(wide), torch.sin(angles).to(wide)
    return (REFERENCE if x.dtype == torch.float64 else PORTABLE).rope(heads, cos, sin).flatten(1)


OPERATIONS = (norm, silu, rope)


def inputs(width: int, dtype: torch.dtype) -> Tensor:
    x = probe(ROWS, width, dtype)
    x[7] = 0
    x[8, : width // 2] = torch.tensor([-200.0, -88.5, 88.5, 200.0]).repeat(width)[: width // 2]
    return x


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_near_the_definition(operation: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    x = inputs(576, dtype)
    exact = operation(x.double())
    error = (operation(x).double() - exact).abs()
    size = exact.abs() if operation is not rope else exact.abs().amax(-1, keepdim=True)  # a difference cancels
    assert (error <= ROUNDING[dtype] * size + 1e-30).all()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_keeps_its_bits(operation: Callable[[Tensor], Tensor], dtype: torch.dtype, width: int) -> None:
    x = inputs(width, dtype)
    alone = torch.cat([operation(row) for row in x.split(1)])
    for count in (1, 2, 3):
        with threads(count):
            for rows in COUNTS:
                for start in (0, ROWS - rows):
                    part = slice(start, start + rows)
                    assert same_bits(operation(x[part]), alone[part]), (count, rows, start)


def test_large_batches_keep_bits_on_every_thread_count() -> None:
    """Enough elements for torch to split them among threads, at places that no vector ends at."""
    x = probe(67, 3 * 1003 * 2, torch.float32)
    with threads(1):
        expected = torch.cat([silu(row) for row in x.split(1)])
    for count in (1, 2, 3):
        with threads(count):
            assert same_bits(silu(x), expected)


def test_the_vector_body_of_silu_would_be_caught() -> None:
    """torch's own silu rounds the tail of a flat array otherwise: the comparison above can fail."""
    x = probe(5, 37, torch.float32).clamp(-20, 20)
    whole = torch.nn.functional.silu(x)
    alone = torch.cat([torch.nn.functional.silu(row) for row in x.split(1)])
    assert not same_bits(whole, alone)


def test_embedding_is_a_copy() -> None:
    weight = probe(50, 16, torch.bfloat16)
    tokens = torch.tensor([3, 49, 3, 0])
    assert same_bits(PORTABLE.embedding(tokens, weight), weight[tokens])
    assert same_bits(REFERENCE.embedding(tokens, weight), weight[tokens])
