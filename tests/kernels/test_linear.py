"""Linears and heads: near the definition in float64, and the same bits for a row in any batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palmette.kernels.portable import PortableKernels
from palmette.kernels.portable.row_blocks import probe, same_bits, threads
from palmette.kernels.reference import ReferenceKernels

DTYPES = (torch.float32, torch.bfloat16)
SHAPES = ((48, 64), (576, 192), (64, 1000), (16, 24))  # K, N
ROWS = 301
COUNTS = (*range(1, 36), 63, 64, 65, 100, 255, 256, 257, 300, 301)
Product = Callable[[Tensor], Tensor]


def case(inner: int, outer: int, dtype: torch.dtype, *, bias: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    x, weight = probe(ROWS, inner, dtype), probe(outer, inner, dtype) / inner
    return x, weight, probe(outer, 1, dtype).flatten() if bias else None


def depends_on_its_batch(product: Product, x: Tensor, counts: tuple[int, ...] = COUNTS) -> list[tuple[int, int]]:
    """(threads, rows) at which some row has other bits than in a batch of its own."""
    alone = torch.cat([product(row) for row in x.split(1)])
    found = []
    for count in (1, 2, 3):
        with threads(count):
            for rows in counts:
                parts = (slice(0, rows), slice(len(x) - rows, len(x)))
                if not all(same_bits(product(x[part]), alone[part]) for part in parts):
                    found.append((count, rows))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_near_the_definition(shape: tuple[int, int], dtype: torch.dtype, bias: bool) -> None:
    """Error at most K + 2 roundings of float32 sums of magnitudes, and two of the output's dtype."""
    x, weight, offset = case(*shape, dtype, bias=bias)
    found = PortableKernels().linear(x, weight, offset).double()
    exact = ReferenceKernels().linear(x.double(), weight.double(), None if offset is None else offset.double())
    magnitudes = x.double().abs() @ weight.double().abs().t() + (0 if offset is None else offset.double().abs())
    bound = magnitudes * (shape[0] + 2) * 2**-24 + exact.abs() * 2 * torch.finfo(dtype).eps
    assert ((found - exact).abs() <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_a_row_keeps_its_bits(shape: tuple[int, int], dtype: torch.dtype, bias: bool) -> None:
    x, weight, offset = case(*shape, dtype, bias=bias)
    kernels = PortableKernels()
    assert not depends_on_its_batch(lambda part: kernels.linear(part, weight, offset), x)


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 70), st.sampled_from(DTYPES), st.integers(1, 3))
def test_odd_shapes_keep_bits(inner: int, outer: int, rows: int, dtype: torch.dtype, count: int) -> None:
    x, weight = probe(rows, inner, dtype), probe(outer, inner, dtype)
    kernels = PortableKernels()
    alone = torch.cat([kernels.linear(row, weight) for row in x.split(1)])
    with threads(count):
        assert same_bits(kernels.linear(x, weight), alone)


def test_no_rows() -> None:
    assert PortableKernels().linear(torch.empty(0, 8), torch.ones(5, 8)).shape == (0, 5)


def test_a_batch_dependent_linear_is_caught() -> None:
    """The same comparison on a linear that multiplies the rows as they come, one-row products among them."""
    x, weight, _ = case(576, 192, torch.float32, bias=False)
    assert depends_on_its_batch(lambda part: part @ weight.t(), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_head(dtype: torch.dtype) -> None:
    """Logits stay float32: error of float32 sums alone, and the same bits in any batch."""
    x, weight = probe(70, 576, torch.float32), (probe(1003, 576, torch.float32) / 576).to(dtype)
    head = PortableKernels().head(weight)
    exact = ReferenceKernels().head(weight.double())(x.double())
    bound = x.double().abs() @ weight.double().abs().t() * 578 * 2**-24
    assert ((head(x).double() - exact).abs() <= bound).all()
    assert not depends_on_its_batch(head, x, (1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 70))


def test_reference_rows_keep_their_bits() -> None:
    x, weight, _ = case(48, 64, torch.float32, bias=False)
    reference = ReferenceKernels()
    assert not depends_on_its_batch(lambda part: reference.linear(part, weight), x[:20], (1, 2, 5, 20))
