"""The llama family on the tiny model: exact in any batch, near the reference kernels, independent of future tokens."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import Requests, whole

from palmette.kernels.portable import PortableKernels
from palmette.kernels.portable.row_blocks import same_bits, threads
from palmette.runtime.config import DType
from palmette.runtime.models.loading import Model, load_model

LENGTHS = (1, 40, 151, 17)


@cache
def tiny(dtype: DType, kernels: str = "portable") -> Model:
    return load_model("tiny", dtype, PortableKernels() if kernels == "portable" else "reference")


@cache
def sequences() -> tuple[tuple[int, ...], ...]:
    draw = random.Random(7)
    size = tiny("float32").config.vocab_size
    return tuple(tuple(draw.randrange(size) for _ in range(length)) for length in LENGTHS)


@cache
def alone(dtype: DType) -> tuple[torch.Tensor, ...]:
    with threads(1):
        return tuple(whole(tiny(dtype), sequence) for sequence in sequences())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_near_the_reference_kernels(dtype: DType) -> None:
    """Relative to the largest logit: 1e-5 in float32; 5 % in bfloat16, whose products round to 8 bits."""
    sequence = sequences()[1]
    found, expected = whole(tiny(dtype), sequence), whole(tiny("float32", "reference"), sequence)
    bound = 1e-5 if dtype == "float32" else 5e-2
    assert (found - expected).abs().max() <= bound * expected.abs().max()


@settings(max_examples=25)
@given(
    st.sampled_from(("float32", "bfloat16")),
    st.sampled_from((1, 16, 64)),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_logits_keep_their_bits(dtype: DType, page_size: int, count: int, draw: random.Random) -> None:
    """However the sequences are cut into chunks and whatever is computed together."""
    requests = Requests(tiny(dtype), sequences(), page_size, seed=draw.randrange(100))
    found: list[list[torch.Tensor]] = [[] for _ in LENGTHS]
    with threads(count):
        while open_ := [s for s, length in enumerate(LENGTHS) if requests.done[s] < length]:
            picked = draw.sample(open_, draw.randint(1, len(open_)))
            rows = [(s, min(draw.choice((1, 1, 2, 30, 151)), LENGTHS[s] - requests.done[s])) for s in picked]
            for (s, _), logits in zip(rows, requests.step(rows), strict=True):
                found[s].append(logits)
    for sequence, expected in enumerate(alone(dtype)):
        assert same_bits(torch.cat(found[sequence]), expected)


def test_a_batch_dependent_linear_is_caught() -> None:
    """The same comparison, on a model whose linear multiplies rows as they come."""

    class Careless(PortableKernels):
        def __init__(self) -> None:
            super().__init__()
            self.linear = lambda x, weight, bias=None: torch.nn.functional.linear(x, weight, bias)

    model = load_model("tiny", "float32", Careless())
    sequence = sequences()[2]
    requests = Requests(model, [sequence], 16)
    pieces = [requests.step([(0, 1)])[0] for _ in sequence]
    assert not same_bits(torch.cat(pieces), whole(model, sequence))


def test_only_the_asked_logits_are_computed() -> None:
    requests = Requests(tiny("float32"), sequences(), 16)
    (one,), (many,) = requests.step([(0, 1)]), requests.step([(1, 40)])
    assert one.dtype == torch.float32
    assert one.shape == (1, tiny("float32").config.vocab_size)
    assert many.shape[0] == 40
