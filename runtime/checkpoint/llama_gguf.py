"""A llama-family GGUF file as a Checkpoint: canonical names, halves-layout q and k, config from metadata.

llama.cpp's converter stores each head's q and k rows for interleaved rotary embedding: stored row 2i + h of a
head is row h·(head_dim/2) + i of the model (h = 0, 1). Rows are whole runs of quantised blocks, so putting
them back is exact for every stored form. Called by open.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from palmette.runtime.checkpoint.config import FrequencyRope, LinearRope, ModelConfig, RopeScaling
from palmette.runtime.checkpoint.gguf_file import GgufFile
from palmette.runtime.checkpoint.llama import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    SUPPORTED,
    check_config,
    check_tensors,
)
from palmette.runtime.checkpoint.protocol import RawTensor
from palmette.runtime.errors import DamagedModel, UnknownArchitecture

ROPE_FREQUENCIES = "rope_freqs.weight"

_TOP = {"token_embd.weight": EMBEDDING, "output_norm.weight": FINAL_NORM, "output.weight": HEAD}
_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


class LlamaGguf:
    """A Checkpoint. Raises UnknownArchitecture or DamagedModel when it is made."""

    seeded = False

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.architecture = architecture(file)
        self._stored = {canonical: name for name in file.tensors if (canonical := canonical_name(name)) is not None}
        self.config = check_config(_config(file), file.path)
        check_tensors(
            self.config,
            {name: file.tensors[stored].shape for name, stored in self._stored.items()},
            file.path,
        )

    def tensor_names(self) -> Sequence[str]:
        return self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self._stored)

    def tensor(self, name: str) -> RawTensor:
        raw = self.file.tensors[self._stored[name]].raw()
        if ".q_proj." in name:
            return halves_from_interleaved(raw, self.config.heads)
        if ".k_proj." in name:
            return halves_from_interleaved(raw, self.config.kv_heads)
        return raw


def architecture(file: GgufFile) -> str:
    """The file's architecture. Raises UnknownArchitecture for one that isn't supported."""
    name = file.metadata.get("general.architecture")
    if name not in SUPPORTED:
        raise UnknownArchitecture(
            f"{str(file.path)!r} is of the architecture {name!r}.", hint=f"Supported: {', '.join(SUPPORTED)}."
        )
    return str(name)


def canonical_name(stored: str) -> str | None:
    """Hugging Face's name of a GGUF tensor; None for one that is no weight of the model (rope_freqs)."""
    if stored in _TOP:
        return _TOP[stored]
    match = _LAYER_TENSOR.fullmatch(stored)
    if match is None or match[2] not in _LAYER:
        return None
    return f"model.layers.{int(match[1])}.{_LAYER[match[2]]}.{match[3]}"


def halves_from_interleaved(raw: RawTensor, heads: int) -> RawTensor:
    """Puts the rows of a q or k tensor (weight or bias, `heads` heads) from interleaved into halves order."""
    rows = raw.shape[0]
    stored = raw.data.reshape(heads, rows // heads // 2, 2, -1)
    return RawTensor(raw.shape, raw.dtype, np.ascontiguousarray(stored.swapaxes(1, 2)).reshape(-1))


def _config(file: GgufFile) -> ModelConfig:
    read = _Metadata(file)
    _refuse_variants(file, read)
    hidden = read.whole("embedding_length")
    heads = read.whole("attention.head_count")
    head_dim = read.whole("attention.key_length", hidden // heads if heads else 0)
    rotary = read.whole("rope.dimension_count", head_dim)
    if rotary != head_dim or read.whole("attention.value_length", head_dim) != head_dim:
        raise UnknownArchitecture(
            f"{str(file.path)!r} rotates {rotary} of {head_dim} elements a head, or its values differ.",
            hint="Llama-family models with equal key, value and rotary sizes are supported.",
        )
    embedding = file.tensors.get("token_embd.weight")
    return ModelConfig(
        architecture="llama",
        vocab_size=embedding.shape[0] if embedding else 0,
        hidden_size=hidden,
        intermediate_size=read.whole("feed_forward_length"),
        layers=read.whole("block_count"),
        heads=heads,
        kv_heads=read.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_eps=read.number("attention.layer_norm_rms_epsilon"),
        rope_theta=read.number("rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(file, read),
        context_length=read.whole("context_length"),
        tie_embeddings="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
    )


def _refuse_variants(file: GgufFile, read: _Metadata) -> None:
    if read.whole("expert_count", 0):
        raise UnknownArchitecture(
            f"{str(file.path)!r} is a mixture of {read.whole('expert_count')} experts.",
            hint="Dense llama-family models are supported.",
        )
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise UnknownArchitecture(
            f"{str(file.path)!r} is one part of a model split into {file.metadata['split.count']!r} files.",
            hint="Merge the parts with llama.cpp's gguf-split --merge.",
        )


def _rope_scaling(file: GgufFile, read: _Metadata) -> RopeScaling | None:
    factors = file.tensors.get(ROPE_FREQUENCIES)
    if factors is not None:
        return FrequencyRope(tuple(file.dequantize(ROPE_FREQUENCIES).reshape(-1).tolist()))
    kind = read.get("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return LinearRope(read.number("rope.scaling.factor"))
    raise UnknownArchitecture(
        f"{str(file.path)!r} scales its rotary embedding by {kind!r}.",
        hint="Supported: none, linear, llama3.",
    )


class _Metadata:
    """The architecture's own metadata keys, checked for presence and kind."""

    def __init__(self, file: GgufFile) -> None:
        self.path: Path = file.path
        self.prefix = str(file.metadata["general.architecture"]) + "."
        self.values = file.metadata

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(self.prefix + key, default)

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]  # some converters write one entry a layer
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, value, "a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, value, "a number")
        return float(value)

    def _wrong(self, key: str, value: Any, wanted: str) -> DamagedModel:
        return DamagedModel(
            f"{str(self.path)!r} has {self.prefix + key}={value!r}, which is not {wanted}.",
            hint="The file is damaged or was converted without it: convert or fetch it again.",
        )
