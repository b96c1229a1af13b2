"""The llama family: RMSNorm, rotary grouped-query attention and a gated MLP, before each a norm, after each a sum.

`fuse` turns a checkpoint's tensors into those of layers.py; `LlamaModel.forward` is the whole model. The residual
stream is float32 whatever the weights' dtype, so that only products round to it. Registered in registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from palmette.kernels.protocol import Attention, Batch, Kernels, indices
from palmette.radix_cache.store import KVStore
from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.models.layers import DecoderLayer, DecoderWeights, LinearWeights, Tensors
from palmette.runtime.models.rope import RopeTable, inverse_frequencies

Read = Callable[[str], Tensor]  # canonical name → the tensor in float32

FUSED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


def fuse(config: ModelConfig, read: Read, names: frozenset[str], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """The tensors of layers.py under their names there, one at a time. Norms stay float32.

    The head is float16 beside bfloat16 weights, where float16 holds its values (the more precise of the two there).
    """
    embedding = read("model.embed_tokens.weight")
    tied = "lm_head.weight" not in names
    head = embedding if tied else read("lm_head.weight")
    head_dtype = _head_dtype(head, dtype)
    yield "embedding", embedding.to(dtype)
    if not tied or head_dtype != dtype:
        yield "head", head.to(head_dtype)
    yield "final_norm", read("model.norm.weight")
    for layer in range(config.layers):
        source, target = f"model.layers.{layer}.", f"layers.{layer}."
        yield target + "attention_norm", read(source + "input_layernorm.weight")
        yield target + "mlp_norm", read(source + "post_attention_layernorm.weight")
        for fused, parts in FUSED.items():
            yield f"{target}{fused}.weight", torch.cat([read(f"{source}{part}.weight") for part in parts]).to(dtype)
            if any(f"{source}{part}.bias" in names for part in parts):
                yield f"{target}{fused}.bias", torch.cat([read(f"{source}{part}.bias") for part in parts]).to(dtype)


def _head_dtype(head: Tensor, dtype: torch.dtype) -> torch.dtype:
    largest_half = torch.finfo(torch.float16).max
    fits = dtype == torch.bfloat16 and float(head.abs().max()) <= largest_half
    return torch.float16 if fits else torch.float32


class LlamaModel:
    """Weights, tables and the forward."""

    def __init__(self, config: ModelConfig, tensors: Tensors, kernels: Kernels) -> None:
        self.config = config
        self.kernels = kernels
        self.weights = DecoderWeights.read(tensors, config.layers)
        self.head = kernels.head(self.weights.head)
        frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        self.rope = RopeTable(frequencies, config.context_length)

    def forward(self, batch: Batch, store: KVStore, states: Tensor) -> Tensor:
        """See backends.Decoder."""
        config, kernels, weights = self.config, self.kernels, self.weights
        attention = kernels.attention(
            batch,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            scale=config.head_dim**-0.5,
        )
        slots = indices(batch.write_slots)
        cos, sin = self.rope.rows(indices(batch.positions))
        x = kernels.embedding(indices(batch.tokens), weights.embedding).float()
        for index, layer in enumerate(weights.layers):
            qkv = self._linear(self._norm(x, layer.attention_norm), layer.qkv)
            x = x + self._linear(self._attend(qkv, index, slots, attention, store, cos, sin), layer.out)
            x = x + self._mlp(self._norm(x, layer.mlp_norm), layer)
        if len(states):
            wanted = x.index_select(0, indices(batch.states_at))
            states.copy_(kernels.rms_norm(wanted, weights.final_norm, config.rms_eps))
        last = x.index_select(0, indices(batch.logits_at))
        return self.head(kernels.rms_norm(last, weights.final_norm, config.rms_eps))

    def _attend(
        self, qkv: Tensor, layer: int, slots: Tensor, attention: Attention, store: KVStore, cos: Tensor, sin: Tensor
    ) -> Tensor:
        config = self.config
        qkv = qkv.view(len(qkv), -1, config.head_dim)
        rotated = self.kernels.rope(qkv[:, : config.heads + config.kv_heads], cos, sin)
        q, k = rotated[:, : config.heads], rotated[:, config.heads :]
        store.write(layer, slots, k, qkv[:, config.heads + config.kv_heads :])
        return attention.attend(q, store.keys[layer], store.values[layer]).flatten(1)

    def _mlp(self, x: Tensor, layer: DecoderLayer) -> Tensor:
        gate, up = self._linear(x, layer.gate_up).chunk(2, dim=-1)
        return self._linear(self.kernels.silu_mul(gate, up), layer.down)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.kernels.rms_norm(x, weight, self.config.rms_eps).to(self.weights.embedding.dtype)

    def _linear(self, x: Tensor, linear: LinearWeights) -> Tensor:
        return self.kernels.linear(x, linear.weight, linear.bias)
