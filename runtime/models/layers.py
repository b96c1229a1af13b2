"""A decoder's weights as data, and their form on disk.

Fused where one product serves: q, k and v; gate and up. A fused product gives a column the same bits in every batch,
like any other. Knows nothing of files or forwards. Built by a family (llama.py), stored and read by prepared.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class LinearWeights:
    """weight [out, in], bias [out] or None."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def read(cls, tensors: Tensors, name: str) -> LinearWeights:
        return cls(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))


@dataclass(frozen=True)
class DecoderLayer:
    """Norms are [hidden]; qkv is [(heads + 2 kv_heads) × head_dim, hidden]; gate_up is [2 × intermediate, hidden]."""

    attention_norm: Tensor
    qkv: LinearWeights
    out: LinearWeights
    mlp_norm: Tensor
    gate_up: LinearWeights
    down: LinearWeights

    @classmethod
    def read(cls, tensors: Tensors, layer: int) -> DecoderLayer:
        at = f"layers.{layer}."
        return cls(
            attention_norm=tensors[at + "attention_norm"],
            qkv=LinearWeights.read(tensors, at + "qkv"),
            out=LinearWeights.read(tensors, at + "out"),
            mlp_norm=tensors[at + "mlp_norm"],
            gate_up=LinearWeights.read(tensors, at + "gate_up"),
            down=LinearWeights.read(tensors, at + "down"),
        )


@dataclass(frozen=True)
class DecoderWeights:
    """`embedding` [vocabulary, hidden]; `head` [vocabulary, hidden], float32 or float16 whatever the others are.

    A tied head in the embedding's own dtype isn't stored again.
    """

    embedding: Tensor
    layers: tuple[DecoderLayer, ...]
    final_norm: Tensor
    head: Tensor

    @classmethod
    def read(cls, tensors: Tensors, layers: int) -> DecoderWeights:
        return cls(
            embedding=tensors["embedding"],
            layers=tuple(DecoderLayer.read(tensors, layer) for layer in range(layers)),
            final_norm=tensors["final_norm"],
            head=tensors.get("head", tensors["embedding"]),
        )
