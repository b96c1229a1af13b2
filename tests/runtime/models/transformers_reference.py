"""A checkpoint in transformers' LlamaForCausalLM, float32: the independent reference. Skips what imports it without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from palmette.runtime.checkpoint.config import LinearRope, Llama3Rope, ModelConfig
from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.protocol import Checkpoint

transformers = pytest.importorskip("transformers", reason="needs the test extra `reference` (transformers)")


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
