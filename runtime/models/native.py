"""A decoder on the native kernels: its packed weights as data, and a whole step as one call that releases the GIL.

Quantised weights keep their quants; everything else is packed in the wanted dtype. Knows the llama family's
names (llama.FUSED) and nothing of requests. Chosen by loading.py where a compiler and the model's sizes allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from palmette.kernels.cpu.gguf_blocks import unpack_gguf
from palmette.kernels.cpu.library import (
    Floats,
    Fused,
    KvStorage,
    LayerWeights,
    Library,
    ModelWeights,
    NativeEngine,
    Weight,
)
from palmette.kernels.cpu.packing import (
    GROUP,
    GROUP_BYTES,
    LANES,
    Quantised,
    concatenate,
    gate_up_order,
    pack_float,
    pack_quantised,
    take,
)
from palmette.kernels.protocol import Batch
from palmette.radix_cache.packed_store import PackedKVStore
from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.protocol import Checkpoint, RawTensor
from palmette.runtime.models.layers import Tensors
from palmette.runtime.models.llama import FUSED
from palmette.runtime.models.rope import RopeTable, inverse_frequencies

STORAGE: dict[KvStorage, torch.dtype] = {"bfloat16": torch.bfloat16, "float32": torch.float32, "int8": torch.int8}


def pack(checkpoint: Checkpoint, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """The tensors that NativeDecoder reads: "name.part.format" → packed bytes; norms and biases in float32."""
    config, names = checkpoint.config, frozenset(checkpoint.tensor_names())

    def floats(name: str) -> Tensor:
        return torch.from_numpy(np.array(to_float32(checkpoint.tensor(name)), dtype=np.float32))

    yield from _packed(checkpoint, "embedding", ["model.embed_tokens.weight"], dtype)
    if "lm_head.weight" in names:
        yield from _packed(checkpoint, "head", ["lm_head.weight"], dtype)
    yield "final_norm", floats("model.norm.weight")
    for layer in range(config.layers):
        source, target = f"model.layers.{layer}.", f"layers.{layer}."
        yield target + "attention_norm", floats(source + "input_layernorm.weight")
        yield target + "mlp_norm", floats(source + "post_attention_layernorm.weight")
        for fused, parts in FUSED.items():
            order = gate_up_order(config.intermediate_size) if fused == "gate_up" else None
            yield from _packed(checkpoint, target + fused, [f"{source}{part}.weight" for part in parts], dtype, order)
            if any(f"{source}{part}.bias" in names for part in parts):
                bias = torch.cat([floats(f"{source}{part}.bias") for part in parts])
                yield f"{target}{fused}.bias", bias if order is None else bias[torch.from_numpy(order)]


def _packed(
    checkpoint: Checkpoint,
    target: str,
    names: Sequence[str],
    dtype: torch.dtype,
    order: npt.NDArray[np.intp] | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """A fused linear in as few parts as its formats need; in one where its outputs are put in another order."""
    raws = [checkpoint.tensor(name) for name in names]
    runs = _runs([_read(raw, dtype) for raw in raws])
    if order is not None and len(runs) > 1:
        runs = [np.concatenate([to_float32(raw) for raw in raws])]
    for index, run in enumerate(runs):
        if isinstance(run, Quantised):
            form, packed = run.format, pack_quantised(run if order is None else take(run, order))
            yield f"{target}.{index}.{form}", torch.from_numpy(packed)
        else:
            kind: Literal["bf16", "f32"] = "f32" if dtype == torch.float32 else "bf16"
            yield f"{target}.{index}.{kind}", torch.from_numpy(pack_float(run if order is None else run[order], kind))


def _read(raw: RawTensor, dtype: torch.dtype) -> Quantised | Floats:
    found = None if dtype == torch.float32 else unpack_gguf(raw.dtype, raw.data, (raw.shape[0], raw.shape[1]))
    return to_float32(raw) if found is None else found


def _runs(parts: Sequence[Quantised | Floats]) -> list[Quantised | Floats]:
    """Neighbours of one format joined."""
    runs: list[Quantised | Floats] = []
    for _, run in groupby(parts, key=lambda part: part.format if isinstance(part, Quantised) else None):
        members = list(run)
        quantised = [part for part in members if isinstance(part, Quantised)]
        floats = [part for part in members if not isinstance(part, Quantised)]
        runs.append(concatenate(quantised) if quantised else np.concatenate(floats))
    return runs


class NativeDecoder:
    """See backends.Decoder. `threads` share the work of a step; their number never changes a bit."""

    name = "cpu"

    def __init__(
        self,
        config: ModelConfig,
        tensors: Tensors,
        library: Library,
        *,
        kv: KvStorage,
        threads: int,
    ) -> None:
        self.config = config
        self.kv = kv
        self.numerics = f"{library.path.name} kv={kv}"
        self.native: NativeEngine = library.engine(_weights(config, tensors, kv), threads)

    def new_store(self, pages: int, page_size: int, *, poison: bool = False) -> PackedKVStore:
        config = self.config
        return PackedKVStore(
            config.layers, pages, page_size, config.kv_heads, config.head_dim, STORAGE[self.kv], poison=poison
        )

    def forward(self, batch: Batch, store: PackedKVStore, states: Tensor) -> Tensor:
        """See backends.Decoder."""
        out = np.empty((len(batch.logits_at), self.config.vocab_size), dtype=np.float32)
        self.native.forward(
            tokens=batch.tokens,
            positions=batch.positions,
            write_slots=batch.write_slots,
            row_starts=batch.row_starts,
            tables=batch.block_tables,
            logits_at=batch.logits_at,
            page_size=batch.page_size,
            keys=store.key_addresses,
            values=store.value_addresses,
            out=out,
            states_at=batch.states_at,
            states=states.numpy(),
        )
        return torch.from_numpy(out)


def _weights(config: ModelConfig, tensors: Tensors, kv: KvStorage) -> ModelWeights:
    rope = RopeTable(
        inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling), config.context_length
    )
    hidden, inner, wide = config.hidden_size, config.intermediate_size, config.heads * config.head_dim
    fused = wide + 2 * config.kv_heads * config.head_dim

    def floats(name: str) -> Floats:
        return tensors[name].numpy()

    def weight(name: str, outputs: int, inputs: int) -> Fused:
        return _fused(tensors, name, outputs, inputs)

    embedding = weight("embedding", config.vocab_size, hidden)
    tied = not any(name.startswith("head.") for name in tensors)
    cosines, sines = rope.rows(torch.arange(config.context_length))
    return ModelWeights(
        hidden=hidden,
        inner=inner,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        vocabulary=config.vocab_size,
        eps=config.rms_eps,
        scale=config.head_dim**-0.5,
        kv=kv,
        cosines=np.ascontiguousarray(cosines.numpy(), np.float32),
        sines=np.ascontiguousarray(sines.numpy(), np.float32),
        final_norm=floats("final_norm"),
        embedding=embedding,
        head=embedding if tied else weight("head", config.vocab_size, hidden),
        layers=[
            LayerWeights(
                attention_norm=floats(at + "attention_norm"),
                qkv=weight(at + "qkv", fused, hidden),
                out=weight(at + "out", hidden, wide),
                mlp_norm=floats(at + "mlp_norm"),
                gate_up=weight(at + "gate_up", 2 * inner, hidden),
                down=weight(at + "down", hidden, inner),
            )
            for at in (f"layers.{layer}." for layer in range(config.layers))
        ],
    )


def _fused(tensors: Tensors, name: str, outputs: int, inputs: int) -> Fused:
    bias = tensors.get(f"{name}.bias")
    weights: list[Weight] = []
    done = 0
    while done < outputs:
        form = next(form for form in GROUP_BYTES if f"{name}.{len(weights)}.{form}" in tensors)
        data = tensors[f"{name}.{len(weights)}.{form}"].numpy()
        size = data.size // (inputs // GROUP * GROUP_BYTES[form]) * LANES
        part = None if bias is None else bias.numpy()[done : done + size]
        weights.append(Weight(form, min(size, outputs - done), inputs, data, part))
        done += size
    assert done - outputs < LANES, f"{name} has {done} packed outputs"
    return tuple(weights)
