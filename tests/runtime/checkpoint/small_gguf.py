"""Small GGUF files, written by the gguf library, for the tests of this folder and of runtime/text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, VOCABULARY = 64, 96, 2, 4, 2, 40
HEAD_DIM = HIDDEN // HEADS


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """Halves order → the order that GGUF files store q and k in, row by row as the definition says."""
    head_dim = weight.shape[0] // heads
    stored = np.empty_like(weight)
    for head in range(heads):
        for pair in range(head_dim // 2):
            for half in (0, 1):
                stored[head * head_dim + 2 * pair + half] = weight[head * head_dim + half * head_dim // 2 + pair]
    return stored


def tensors(seed: int = 0) -> dict[str, np.ndarray]:
    """A llama's tensors under GGUF's names, values in float32, q and k in halves order."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        shapes |= {
            at + "attn_norm.weight": (HIDDEN,),
            at + "ffn_norm.weight": (HIDDEN,),
            at + "attn_q.weight": (HIDDEN, HIDDEN),
            at + "attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            at + "attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            at + "attn_output.weight": (HIDDEN, HIDDEN),
            at + "ffn_gate.weight": (INNER, HIDDEN),
            at + "ffn_up.weight": (INNER, HIDDEN),
            at + "ffn_down.weight": (HIDDEN, INNER),
        }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_llama(
    path: Path,
    *,
    quantised: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q4_1,
    values: dict[str, np.ndarray] | None = None,
    without: tuple[str, ...] = (),
    extra: dict[str, np.ndarray] | None = None,
    architecture: str = "llama",
    metadata: dict[str, Any] | None = None,
) -> Path:
    """A whole small llama; matrices in the form `quantised`, q and k interleaved as converters do.

    `metadata` is added to the llama's own, or takes its place.
    """
    writer = gguf.GGUFWriter(path, architecture)
    own = {
        "context_length": 256, "embedding_length": HIDDEN, "block_count": LAYERS, "feed_forward_length": INNER,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 50000.0,
    }  # fmt: skip
    for key, value in ({f"{architecture}.{key}": value for key, value in own.items()} | (metadata or {})).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)
    for name, value in ((values or tensors()) | (extra or {})).items():
        if name in without:
            continue
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2])
        stored = interleave(value, heads) if heads else value
        if stored.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(stored, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(name, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
