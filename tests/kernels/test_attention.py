"""Attention: near the definition in float64, and one function of (position, KV) however it is batched and stored."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import Sequences
from torch import Tensor

from palmette.kernels.portable import PortableKernels
from palmette.kernels.portable.row_blocks import same_bits, threads
from palmette.kernels.protocol import Kernels
from palmette.kernels.reference import ReferenceKernels

PORTABLE, REFERENCE = PortableKernels(), ReferenceKernels()
Rows = list[tuple[int, int, int]]


def attend(kernels: Kernels, sequences: Sequences, rows: Rows, page_size: int = 16, seed: int = 0) -> Tensor:
    batch, q, keys, values = sequences.paged(rows, page_size, seed)
    planned = kernels.attention(
        batch, heads=q.shape[1], kv_heads=keys.shape[2], head_dim=q.shape[2], scale=q.shape[2] ** -0.5
    )
    return planned.attend(q, keys, values)


def exact(sequences: Sequences, rows: Rows) -> Tensor:
    """The definition in float64 on the values as stored."""
    wide = Sequences(*([x.double() for x in xs] for xs in (sequences.q, sequences.k, sequences.v)))
    return attend(REFERENCE, wide, rows)


def one_by_one(sequences: Sequences, sequence: int) -> Tensor:
    """Every position of a sequence as a decode of its own."""
    length = len(sequences.q[sequence])
    return torch.cat([attend(PORTABLE, sequences, [(sequence, at, at + 1)]) for at in range(length)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (4, 1)])
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("head_dim", [16, 64])
def test_near_the_definition(dtype: torch.dtype, heads: int, kv_heads: int, page_size: int, head_dim: int) -> None:
    """Relative to the largest value seen: 1e-5 for float32 sums, and one rounding of the output's dtype."""
    sequences = Sequences.random(
        (1, 150, 33), heads=heads, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype, seed=page_size
    )
    rows = [(0, 0, 1), (1, 120, 150), (2, 32, 33), (1, 0, 7)]
    found = attend(PORTABLE, sequences, rows, page_size).double()
    largest = max(float(v.double().abs().max()) for v in sequences.v)
    bound = largest * (1e-5 + (torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0))
    assert (found - exact(sequences, rows)).abs().max() <= bound


def test_extreme_scores_stay_finite() -> None:
    """Scores of ±1e4 and KV of 1e-30: the maximum is taken off first, and nothing under- or overflows to NaN."""
    sequences = Sequences.random((140, 20), heads=3, kv_heads=1, head_dim=16, dtype=torch.float32, scale=50)
    sequences.k[1] *= 1e-30
    sequences.v[1] *= 1e30
    rows = [(0, 0, 140), (1, 0, 20)]
    found, expected = attend(PORTABLE, sequences, rows).double(), exact(sequences, rows)
    assert torch.isfinite(found).all()
    for part in (slice(0, 140), slice(140, 160)):
        assert (found[part] - expected[part]).abs().max() <= 1e-3 * expected[part].abs().max()


def test_equal_scores_average() -> None:
    sequences = Sequences.random((200,), heads=2, kv_heads=2, head_dim=16, dtype=torch.float32)
    sequences.q[0].zero_()
    found = attend(PORTABLE, sequences, [(0, 199, 200)])
    torch.testing.assert_close(found[0], sequences.v[0].mean(0), rtol=1e-5, atol=1e-6)


@st.composite
def compositions(draw: st.DrawFn, lengths: tuple[int, ...]) -> Rows:
    """Each sequence cut into chunks at random; some of the chunks, in any order."""
    rows: Rows = []
    for sequence, length in enumerate(lengths):
        cuts = sorted({0, length, *draw(st.lists(st.integers(1, length), max_size=6))})
        rows += [(sequence, first, end) for first, end in pairwise(cuts)]
    kept = draw(st.lists(st.sampled_from(rows), min_size=1, max_size=12, unique=True))
    return draw(st.permutations(kept))


LENGTHS = (1, 300, 131, 64)
CASES = {
    (share, dtype): Sequences.random(LENGTHS, heads=2 * share, kv_heads=2, head_dim=16, dtype=dtype, seed=share)
    for share in (1, 3, 4)
    for dtype in (torch.float32, torch.bfloat16)
}
ALONE: dict[tuple[int, torch.dtype], list[Tensor]] = {}


@settings(max_examples=60)
@given(
    compositions(LENGTHS),
    st.sampled_from(sorted(CASES, key=str)),
    st.sampled_from((1, 16, 64, 24, 256)),
    st.integers(1, 3),
    st.integers(0, 9),
)
def test_a_row_keeps_its_bits(rows: Rows, case: tuple[int, torch.dtype], page_size: int, count: int, seed: int) -> None:
    """Whatever else is in the batch, however the sequence is cut, at any page size, on any thread count."""
    sequences = CASES[case]
    if case not in ALONE:
        ALONE[case] = [one_by_one(sequences, sequence) for sequence in range(len(LENGTHS))]
    with threads(count):
        found = attend(PORTABLE, sequences, rows, page_size, seed)
    expected = torch.cat([ALONE[case][sequence][first:end] for sequence, first, end in rows])
    assert same_bits(found, expected)


@pytest.mark.parametrize("share", [1, 3])
@pytest.mark.parametrize("at", [0, 30, 127, 128, 299])
def test_what_is_not_finite_reaches_those_who_see_it_and_nobody_else(share: int, at: int) -> None:
    """Tokens before a position keep their bits, whatever it holds, in one chunk with it or not; the others show it."""
    rows = [(0, 0, 300), (1, 20, 131), (0, 25, 31), (0, 127, 128)]
    fine = Sequences.random((300, 131), heads=2 * share, kv_heads=2, head_dim=16, dtype=torch.bfloat16)
    before = attend(PORTABLE, fine, rows)
    seen = torch.tensor([sequence == 0 and position >= at for sequence, *ends in rows for position in range(*ends)])
    for odd in (float("nan"), float("inf")):
        for part in ("k", "v"):
            broken = replace(fine, **{part: [x.clone() for x in getattr(fine, part)]})
            getattr(broken, part)[0][at] = odd
            after = attend(PORTABLE, broken, rows)
            assert same_bits(after[~seen], before[~seen])
            assert not torch.isfinite(after[seen]).any()


def test_many_rows_of_unlike_lengths_keep_their_bits() -> None:
    """A decode step that fills several groups."""
    lengths = tuple(range(3, 1200, 37))
    sequences = Sequences.random(lengths, heads=3, kv_heads=1, head_dim=64, dtype=torch.bfloat16)
    rows = [(s, length - 1, length) for s, length in enumerate(lengths)]
    together = attend(PORTABLE, sequences, rows)
    alone = torch.cat([attend(PORTABLE, sequences, [row]) for row in rows])
    assert same_bits(together, alone)


def test_attention_in_one_softmax_would_be_caught() -> None:
    """Attention whose sums follow the row count of the batch gives other bits: the comparison can fail."""
    sequences = Sequences.random((300,), heads=2, kv_heads=2, head_dim=16, dtype=torch.float32)
    q, k, v = (x[0].transpose(0, 1).unsqueeze(0) for x in (sequences.q, sequences.k, sequences.v))
    whole = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    last = torch.nn.functional.scaled_dot_product_attention(q[:, :, -1:], k, v)
    assert not same_bits(whole[:, :, -1:], last)
