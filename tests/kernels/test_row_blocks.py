"""How rows are cut into products, and that a product which depends on its batch is found out."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palmette.kernels.portable.row_blocks import (
    BASE_ROWS,
    CANDIDATE_ROWS,
    Verified,
    decompose,
    probe,
    same_bits,
    threads,
    verified_rows,
)

sizes = st.lists(st.sampled_from(CANDIDATE_ROWS), unique=True).map(lambda found: tuple(sorted({*found, BASE_ROWS})))


@given(st.integers(1, 2000), sizes)
def test_the_rows_are_covered_with_at_most_one_padded_product(rows: int, usable: tuple[int, ...]) -> None:
    parts = decompose(rows, usable)
    assert set(parts) <= set(usable)
    assert list(parts) == sorted(parts, reverse=True)
    assert sum(parts) >= rows > sum(parts[:-1])


def test_few_calls_for_many_rows() -> None:
    assert decompose(1, CANDIDATE_ROWS) == (4,)
    assert decompose(16, CANDIDATE_ROWS) == (16,)
    assert decompose(64, CANDIDATE_ROWS) == (64,)
    assert decompose(512, CANDIDATE_ROWS) == (256, 256)
    assert len(decompose(300, CANDIDATE_ROWS)) <= 3


def test_a_product_that_depends_on_its_row_count_is_not_used() -> None:
    """One that adds a rounding step for small and for large counts: those counts are refused, the others kept."""
    rows = probe(272, 32, torch.float32)
    weight = probe(24, 32, torch.float32)

    def product(part: Tensor) -> Tensor:
        out = (part.unsqueeze(1) * weight).sum(-1)
        return out * (1 + 2**-22) if len(part) in (4, 128) else out

    assert verified_rows(product, rows) == Verified((8, 16, 32, 64, 256), threads=1)


def test_a_shape_that_depends_on_the_thread_count_is_computed_on_one_thread() -> None:
    rows = probe(272, 32, torch.float32)

    def product(part: Tensor) -> Tensor:
        return part * torch.get_num_threads()

    with threads(3):
        assert verified_rows(product, rows) == Verified(CANDIDATE_ROWS, threads=1)


def test_a_product_that_depends_on_a_row_s_place_is_not_used_at_all() -> None:
    rows = probe(272, 32, torch.float32)
    assert verified_rows(lambda part: part * torch.arange(len(part)).unsqueeze(1), rows).counts == ()


def test_same_bits_sees_signs_of_zero_and_accepts_nan() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(nan, nan.double())
