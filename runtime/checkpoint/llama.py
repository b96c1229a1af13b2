"""The llama family's tensors under their canonical names, and what their shapes must be.

Called by every reader of the family (GGUF, safetensors, tiny) so that a file that doesn't fit its own
configuration is refused when it is opened, not in the middle of a forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.errors import DamagedModel

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
SUPPORTED = ("llama",)
MAX_LAYERS = 4096

Shapes = Mapping[str, tuple[int, ...]]


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a model of this configuration: canonical name → shape. Linears are [out, in]."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, hidden)}
    for layer in range(config.layers):
        at = f"model.layers.{layer}."
        linears = {
            "self_attn.q_proj": (query, hidden, config.attention_bias),
            "self_attn.k_proj": (key, hidden, config.attention_bias),
            "self_attn.v_proj": (key, hidden, config.attention_bias),
            "self_attn.o_proj": (hidden, query, config.output_bias),
            "mlp.gate_proj": (inner, hidden, config.mlp_bias),
            "mlp.up_proj": (inner, hidden, config.mlp_bias),
            "mlp.down_proj": (hidden, inner, config.mlp_bias),
        }
        shapes[at + "input_layernorm.weight"] = (hidden,)
        shapes[at + "post_attention_layernorm.weight"] = (hidden,)
        for name, (rows, columns, biased) in linears.items():
            shapes[f"{at}{name}.weight"] = (rows, columns)
            if biased:
                shapes[f"{at}{name}.bias"] = (rows,)
    shapes[FINAL_NORM] = (hidden,)
    if not config.tie_embeddings:
        shapes[HEAD] = (config.vocab_size, hidden)
    return shapes


def check_config(config: ModelConfig, path: Path) -> ModelConfig:
    """Returns it, or raises DamagedModel naming the size that can't be."""
    for field in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "layers",
        "heads",
        "kv_heads",
        "head_dim",
    ):
        value = getattr(config, field)
        if not 1 <= value <= 1 << 24:
            raise _impossible(path, f"{field}={value!r} is out of range")
    if config.layers > MAX_LAYERS:
        raise _impossible(path, f"layers={config.layers!r} is more than {MAX_LAYERS}")
    if not 1 <= config.context_length <= 1 << 30:
        raise _impossible(path, f"context_length={config.context_length!r} is out of range")
    if config.heads % config.kv_heads:
        raise _impossible(path, f"{config.heads} query heads don't divide among {config.kv_heads} KV heads")
    if config.head_dim % 2:
        raise _impossible(path, f"head_dim={config.head_dim!r} is odd")
    if not 0.0 < config.rms_eps < 1.0:
        raise _impossible(path, f"rms_eps={config.rms_eps!r} is not between 0 and 1")
    if not 0.0 < config.rope_theta < float("inf"):
        raise _impossible(path, f"rope_theta={config.rope_theta!r} is not a positive number")
    return config


def check_tensors(config: ModelConfig, found: Shapes, path: Path) -> None:
    """Raises DamagedModel where a tensor is missing or has another shape than the configuration says."""
    for name, shape in tensor_shapes(config).items():
        if name not in found:
            raise _impossible(path, f"tensor {name!r} is missing")
        if found[name] != shape:
            raise _impossible(path, f"tensor {name!r} has the shape {found[name]!r}, not {shape!r}")


def _impossible(path: Path, what: str) -> DamagedModel:
    return DamagedModel(
        f"{str(path)!r} doesn't hold together: {what}.",
        hint="The model's files are incomplete or from different models: fetch or copy them again.",
    )
