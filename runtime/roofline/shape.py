"""The sizes of a model that costs depend on, summed up once, so that a step's cost is a handful of multiplications.

Pure arithmetic on a ModelConfig: no files, no numpy. Used by cost.py, `palmette roofline` and `palmette bench`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from palmette.runtime.checkpoint.config import ModelConfig

WeightFormat = Literal[
    "f64", "f32", "bf16", "f16", "fp8",
    "q8_0", "q6_k", "q5_1", "q5_0", "q5_k", "q4_1", "q4_0", "q4_k", "iq4_nl", "iq4_xs", "q3_k", "q2_k",
]  # fmt: skip
KvFormat = Literal["f32", "bf16", "f16", "fp8", "int8"]

# Bits of one weight as stored, scales and minima of its block included. fp8's scales, one a tensor or block of 128
# squared, are left out.
BITS: dict[WeightFormat, float] = {
    "f64": 64, "f32": 32, "bf16": 16, "f16": 16, "fp8": 8,
    "q8_0": 8.5, "q6_k": 6.5625, "q5_1": 6, "q5_0": 5.5, "q5_k": 5.5, "q4_1": 5, "q4_0": 4.5, "q4_k": 4.5,
    "iq4_nl": 4.5, "iq4_xs": 4.25, "q3_k": 3.4375, "q2_k": 2.625,
}  # fmt: skip
KV_BYTES: dict[KvFormat, int] = {"f32": 4, "bf16": 2, "f16": 2, "fp8": 1, "int8": 1}
KV_SCALE_BYTES = 4  # "int8" has a float32 scale per (token, KV head), for keys and for values
NORM_BYTES = 4


class StoredWeights(msgspec.Struct, frozen=True):
    """How weights lie in memory: mean bits of a weight, and what most of them are, which decides the arithmetic."""

    format: WeightFormat
    blocks: float  # of the linears of the layers
    head: float  # of the output projection
    embedding: float  # of the table that tokens are looked up in; the head itself where they are tied

    @classmethod
    def all_in(cls, format: WeightFormat) -> StoredWeights:
        return cls(format, BITS[format], BITS[format], BITS[format])


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """A model's sizes. Bytes as stored; parameters and elements are counts."""

    layers: int
    context_length: int
    weights: WeightFormat
    kv: KvFormat
    block_parameters: int  # of all linears of all layers
    head_parameters: int
    weight_bytes: float  # that every step reads, whatever its rows: linears, norms, and the head
    resident_bytes: float  # weight_bytes, and the embedding where it is not the head
    embedding_row_bytes: float  # looked up for a token
    kv_token_bytes: int  # keys and values of one position in all layers
    pair_operations: int  # of one query position and one key position in all layers and heads
    activation_elements: int  # of one token: every linear's inputs and outputs, once
    vocabulary: int


def model_shape(
    config: ModelConfig, weights: StoredWeights | WeightFormat = "bf16", kv: KvFormat = "bf16"
) -> ModelShape:
    """The shape of a llama-like decoder: grouped-query attention and a gated MLP. Biases are not counted."""
    stored = weights if isinstance(weights, StoredWeights) else StoredWeights.all_in(weights)
    hidden, inner = config.hidden_size, config.intermediate_size
    wide, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
    linears = ((hidden, wide + 2 * narrow), (wide, hidden), (hidden, 2 * inner), (inner, hidden))
    blocks = config.layers * sum(inputs * outputs for inputs, outputs in linears)
    head = config.vocab_size * hidden
    norms = (2 * config.layers + 1) * hidden * NORM_BYTES
    weight_bytes = (blocks * stored.blocks + head * stored.head) / 8 + norms
    embedding = 0.0 if config.tie_embeddings else head * stored.embedding / 8
    scales = KV_SCALE_BYTES * config.kv_heads if kv == "int8" else 0
    return ModelShape(
        layers=config.layers,
        context_length=config.context_length,
        weights=stored.format,
        kv=kv,
        block_parameters=blocks,
        head_parameters=head,
        weight_bytes=weight_bytes,
        resident_bytes=weight_bytes + embedding,
        embedding_row_bytes=hidden * stored.embedding / 8,
        kv_token_bytes=2 * config.layers * (narrow * KV_BYTES[kv] + scales),
        pair_operations=4 * config.layers * wide,  # a multiply-add for the score, one for the value
        activation_elements=config.layers * sum(inputs + outputs for inputs, outputs in linears),
        vocabulary=config.vocab_size,
    )


def _llama(
    layers: int, hidden: int, heads: int, kv_heads: int, inner: int, context: int, vocabulary: int = 128_256
) -> ModelConfig:
    return ModelConfig(
        architecture="llama", vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, layers=layers,
        heads=heads, kv_heads=kv_heads, head_dim=hidden // heads, rms_eps=1e-5, rope_theta=500_000.0,
        context_length=context,
    )  # fmt: skip


PRESETS: dict[str, ModelConfig] = {
    "llama-2-7b": _llama(32, 4096, 32, 32, 11_008, 4096, 32_000),
    "llama-3-8b": _llama(32, 4096, 32, 8, 14_336, 8192),
    "llama-3-70b": _llama(80, 8192, 64, 8, 28_672, 8192),
    "llama-3.1-8b": _llama(32, 4096, 32, 8, 14_336, 131_072),
    "llama-3.1-70b": _llama(80, 8192, 64, 8, 28_672, 131_072),
    "llama-3.1-405b": _llama(126, 16_384, 128, 8, 53_248, 131_072),
}
"""Shapes of published models, for questions about machines that aren't here."""
