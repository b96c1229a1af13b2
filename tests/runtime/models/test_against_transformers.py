"""Logits and hidden states against transformers' LlamaForCausalLM on the same weights, float32.

The largest difference must be under 1e-4 of the largest value.
"""

from __future__ import annotations

import msgspec
import pytest
from model_cases import Requests
from torch import Tensor
from transformers_reference import theirs

from palmette.kernels.select import KernelName
from palmette.runtime.checkpoint.config import LinearRope, Llama3Rope, RopeScaling
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.models.backends import choose_backend
from palmette.runtime.models.loading import build_model, prepare

BOUND = 1e-4


def compare(
    checkpoint: Checkpoint, scaling: RopeScaling | None, tokens: tuple[int, ...], kernels: KernelName = "portable"
) -> float:
    """The largest difference of logits, relative to the largest logit; or of hidden states, where that is larger."""
    config = msgspec.structs.replace(checkpoint.config, rope_scaling=scaling)
    backend = choose_backend(config, "float32", kernels, 2)
    prepared = prepare(checkpoint, backend)
    model = build_model(type(prepared)(config, prepared.tensors, prepared.digest), backend)
    expected = theirs(checkpoint, config, tokens)
    (logits,), (states,) = Requests(model, [tokens], 16).step_with_states([(0, len(tokens))])
    return max(distance(logits, expected[0]), distance(states, expected[1]))


def distance(ours: Tensor, expected: Tensor) -> float:
    assert ours.shape == expected.shape
    return float((ours - expected).abs().max() / expected.abs().max())


SCALINGS = (None, LinearRope(2.0), Llama3Rope(8.0, 1.0, 4.0, 32))


@pytest.mark.parametrize("scaling", SCALINGS, ids=("default", "linear", "llama3"))
@pytest.mark.parametrize("kernels", ["portable", "cpu"])
def test_tiny(scaling: RopeScaling | None, kernels: KernelName) -> None:
    assert compare(open_checkpoint(resolve("tiny")), scaling, tuple(range(5, 300)), kernels) < BOUND


def test_the_comparison_can_fail() -> None:
    """With llama3 scaling on our side only, it does."""
    checkpoint = open_checkpoint(resolve("tiny"))
    tokens = tuple(range(5, 200))
    plain = theirs(checkpoint, checkpoint.config, tokens)
    scaled = theirs(checkpoint, msgspec.structs.replace(checkpoint.config, rope_scaling=SCALINGS[2]), tokens)
    for ours, expected in zip(scaled, plain, strict=True):
        assert distance(ours, expected) > 100 * BOUND


@pytest.mark.slow
def test_the_default_model() -> None:
    checkpoint = open_checkpoint(resolve("smollm2-135m"))
    tokens = tuple(range(1000, 1120))
    assert compare(checkpoint, checkpoint.config.rope_scaling, tokens) < BOUND
