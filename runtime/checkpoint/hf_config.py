"""config.json of a Hugging Face folder → ModelConfig. Called by safetensors_folder and tiny."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from palmette.runtime.checkpoint.config import LinearRope, Llama3Rope, ModelConfig, RopeScaling
from palmette.runtime.errors import DamagedModel, UnknownArchitecture

# Hugging Face's class name → our architecture
ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama"}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises DamagedModel naming the file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise DamagedModel(
            f"{str(path)!r} can't be read: {error.strerror or error}.",
            hint="Fetch or copy the whole folder again.",
        ) from error
    except msgspec.DecodeError as error:
        raise DamagedModel(f"{str(path)!r} is not a JSON object: {error}.", hint="Fetch or copy it again.") from error


def read_config(folder: Path) -> ModelConfig:
    """The folder's configuration. Raises UnknownArchitecture, or DamagedModel for a wrong value."""
    path = folder / "config.json"
    values = read_json(path)
    architecture = _architecture(path, values)
    try:
        given = msgspec.convert(values, _Given)
    except msgspec.ValidationError as error:
        raise DamagedModel(f"{str(path)!r} has a wrong value: {error}.", hint="Fetch or copy it again.") from error
    if given.hidden_act != "silu":
        raise _unsupported(path, "hidden_act", given.hidden_act, "silu is supported")
    if given.sliding_window is not None and given.sliding_window < given.max_position_embeddings:
        raise _unsupported(path, "sliding_window", given.sliding_window, "full attention is supported")
    if given.quantization_config:
        method = given.quantization_config.get("quant_method")
        raise _unsupported(path, "quantization_config", method, "take the unquantised model or a GGUF file of it")
    theta, scaling = _rope(path, given)
    return ModelConfig(
        architecture=architecture,
        vocab_size=given.vocab_size,
        hidden_size=given.hidden_size,
        intermediate_size=given.intermediate_size,
        layers=given.num_hidden_layers,
        heads=given.num_attention_heads,
        kv_heads=given.num_key_value_heads or given.num_attention_heads,
        head_dim=given.head_dim or given.hidden_size // max(given.num_attention_heads, 1),
        rms_eps=given.rms_norm_eps,
        rope_theta=theta,
        rope_scaling=scaling,
        context_length=given.max_position_embeddings,
        tie_embeddings=given.tie_word_embeddings,
        attention_bias=given.attention_bias,
        output_bias=given.attention_bias,
        mlp_bias=given.mlp_bias,
    )


class _Given(msgspec.Struct):
    """The keys of config.json that matter, with transformers' defaults for the llama family."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    sliding_window: int | None = None
    quantization_config: dict[str, Any] | None = None


class _Llama3(msgspec.Struct):
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


def _architecture(path: Path, values: dict[str, Any]) -> str:
    names = values.get("architectures") or []
    known = [ARCHITECTURES[name] for name in names if isinstance(name, str) and name in ARCHITECTURES]
    if not known:
        raise UnknownArchitecture(
            f"{str(path)!r} is of the architecture {', '.join(map(repr, names)) or 'None'}.",
            hint=f"Supported: {', '.join(ARCHITECTURES)}.",
        )
    return known[0]


def _rope(path: Path, given: _Given) -> tuple[float, RopeScaling | None]:
    """Base and scaling. Older files say rope_theta and rope_scaling, newer ones rope_parameters."""
    parameters = {**(given.rope_scaling or {}), **(given.rope_parameters or {})}
    theta = given.rope_theta if given.rope_theta is not None else parameters.get("rope_theta", 10000.0)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    try:
        base = msgspec.convert(theta, float)
        if kind == "default":
            return base, None
        if kind == "linear":
            return base, LinearRope(msgspec.convert(parameters.get("factor"), float))
        if kind == "llama3":
            llama3 = msgspec.convert(parameters, _Llama3)
            return base, Llama3Rope(
                llama3.factor,
                llama3.low_freq_factor,
                llama3.high_freq_factor,
                llama3.original_max_position_embeddings,
            )
    except msgspec.ValidationError as error:
        raise DamagedModel(
            f"{str(path)!r} has wrong rotary values {parameters!r}: {error}.", hint="Fetch or copy it again."
        ) from error
    raise _unsupported(path, "rope_type", kind, "default, linear and llama3 are supported")


def _unsupported(path: Path, key: str, value: Any, hint: str) -> UnknownArchitecture:
    return UnknownArchitecture(f"{str(path)!r} has {key}={value!r}.", hint=f"{hint[0].upper()}{hint[1:]}.")
