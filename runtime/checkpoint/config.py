"""The shape of a model, the same struct whichever file it was read from.

A leaf of the checkpoint room: no I/O. Read by runtime/models (to build layers) and by the engine (context
and KV size).
"""

from __future__ import annotations

import msgspec


class LinearRope(msgspec.Struct, frozen=True, tag="linear"):
    """Positions are divided by `factor`."""

    factor: float


class Llama3Rope(msgspec.Struct, frozen=True, tag="llama3"):
    """Llama 3's frequency-dependent scaling, by its four numbers."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int


class FrequencyRope(msgspec.Struct, frozen=True, tag="frequencies"):
    """Each of the head_dim / 2 rotary frequencies is divided by its own factor (GGUF's rope_freqs.weight)."""

    factors: tuple[float, ...]


RopeScaling = LinearRope | Llama3Rope | FrequencyRope


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only transformer. Sizes are counts of elements, `context_length` of tokens."""

    architecture: str  # "llama"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_eps: float
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    context_length: int = 2048
    tie_embeddings: bool = False
    attention_bias: bool = False  # q, k and v projections have a bias
    output_bias: bool = False  # o projection has one
    mlp_bias: bool = False
