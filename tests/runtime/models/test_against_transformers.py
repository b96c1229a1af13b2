"""Logits and hidden states against transformers' LlamaForCausalLM on the same weights, float32.

The largest difference must be under 1e-4 of the largest value.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from model_cases import Requests
from torch import Tensor

from palmette.kernels.select import KernelName
from palmette.runtime.checkpoint.config import LinearRope, Llama3Rope, ModelConfig, RopeScaling
from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.models.backends import choose_backend
from palmette.runtime.models.loading import build_model, prepare

transformers = pytest.importorskip("transformers", reason="needs the test extra `reference` (transformers)")

BOUND = 1e-4


def rope_parameters(config: ModelConfig) -> dict[str, Any]:
    theta = {"rope_theta": config.rope_theta}
    match config.rope_scaling:
        case None:
            return {"rope_type": "default", **theta}
        case LinearRope(factor):
            return {"rope_type": "linear", "factor": factor, **theta}
        case Llama3Rope(factor, low, high, original):
            return {
                "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
                "original_max_position_embeddings": original, **theta,
            }  # fmt: skip
        case other:
            raise AssertionError(other)


def theirs(checkpoint: Checkpoint, config: ModelConfig, tokens: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Logits, and hidden states behind the final norm."""
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab_size, hidden_size=config.hidden_size, intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers, num_attention_heads=config.heads, num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim, rms_norm_eps=config.rms_eps, max_position_embeddings=config.context_length,
            tie_word_embeddings=config.tie_embeddings, attention_bias=config.attention_bias,
            mlp_bias=config.mlp_bias, rope_parameters=rope_parameters(config), attn_implementation="eager",
        )
    ).eval()  # fmt: skip
    weights = {name: torch.from_numpy(to_float32(checkpoint.tensor(name)).copy()) for name in checkpoint.tensor_names()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert set(missing) <= ({"lm_head.weight"} if config.tie_embeddings else set())
    with torch.inference_mode():
        found = model(torch.tensor([tokens]), output_hidden_states=True)
    return found.logits[0].float(), found.hidden_states[-1][0].float()


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
