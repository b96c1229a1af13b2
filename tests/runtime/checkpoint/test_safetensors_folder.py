"""A folder of safetensors as a checkpoint: values, shards, configuration, and what is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from palmette.runtime.checkpoint.config import LinearRope, Llama3Rope
from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.hf_config import read_config
from palmette.runtime.checkpoint.llama import tensor_shapes
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.checkpoint.safetensors_folder import read_shard
from palmette.runtime.errors import DamagedModel, UnknownArchitecture

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 20, "hidden_size": 12, "intermediate_size": 16,
    "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip


def write_config(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def random_tensors(folder: Path, dtype: type = np.float32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape).astype(dtype) for name, shape in tensor_shapes(read_config(folder)).items()
    }


def opened(folder: Path) -> Checkpoint:
    return open_checkpoint(ModelFiles(name="m", kind="safetensors", path=folder))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_values_of_one_file(tmp_path: Path, dtype: type) -> None:
    tensors = random_tensors(write_config(tmp_path), dtype)
    save_file(
        tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, dtype)}, tmp_path / "model.safetensors"
    )
    checkpoint = opened(tmp_path)
    assert set(checkpoint.tensor_names()) == set(tensors)
    assert checkpoint.architecture == "llama"
    assert not checkpoint.seeded
    for name, value in tensors.items():
        raw = checkpoint.tensor(name)
        assert raw.dtype == {np.float32: "f32", np.float16: "f16"}[dtype]
        assert np.array_equal(to_float32(raw), value.astype(np.float32))


def test_bfloat16_and_an_odd_header(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5, 3.140625]], np.float32)
    stored = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"w": {"dtype": "BF16", "shape": [1, 3], "data_offsets": [0, 6]}}).encode()
    header += b" " * (1 - len(header) % 2)  # the data begin at an odd address
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + stored)
    raw = read_shard(path)["w"]
    assert (raw.dtype, raw.shape) == ("bf16", (1, 3))
    assert np.array_equal(to_float32(raw), values)


def test_shards_by_their_index(tmp_path: Path) -> None:
    tensors = random_tensors(write_config(tmp_path))
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = opened(tmp_path)
    assert all(np.array_equal(to_float32(checkpoint.tensor(name)), tensors[name]) for name in names)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(DamagedModel, match=r"lacks b\.safetensors"):
        opened(tmp_path)


def test_a_model_without_a_head_is_tied(tmp_path: Path) -> None:
    tensors = random_tensors(write_config(tmp_path, tie_word_embeddings=True))
    save_file(tensors, tmp_path / "model.safetensors")
    write_config(tmp_path, tie_word_embeddings=False)
    checkpoint = opened(tmp_path)
    assert checkpoint.config.tie_embeddings
    assert "lm_head.weight" not in checkpoint.tensor_names()


def test_configuration_and_its_defaults(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path, num_key_value_heads=None, rope_theta=5e5))
    assert (config.kv_heads, config.head_dim, config.rope_theta, config.rope_scaling) == (3, 4, 5e5, None)
    mistral = read_config(write_config(tmp_path, architectures=["MistralForCausalLM"], sliding_window=None, head_dim=6))
    assert (mistral.architecture, mistral.head_dim) == ("llama", 6)


def test_rotary_scaling_in_both_spellings(tmp_path: Path) -> None:
    numbers = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    llama3 = Llama3Rope(8.0, 1.0, 4.0, 8192)
    older = read_config(write_config(tmp_path, rope_theta=5e5, rope_scaling={"rope_type": "llama3", **numbers}))
    newer = read_config(write_config(tmp_path, rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **numbers}))
    assert older.rope_scaling == newer.rope_scaling == llama3
    assert older.rope_theta == newer.rope_theta == 5e5
    linear = read_config(write_config(tmp_path, rope_scaling={"type": "linear", "factor": 2}))
    assert linear.rope_scaling == LinearRope(2.0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"architectures": None}, "architecture"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 16}, "sliding_window=16"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UnknownArchitecture, match=says) as caught:
        read_config(write_config(tmp_path, **changes))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_attention_heads": 0}, "heads=0"),
        ({"num_key_value_heads": 2}, "3 query heads"),
        ({"hidden_size": -12}, "hidden_size"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rotary"),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    save_file(random_tensors(write_config(tmp_path)), tmp_path / "model.safetensors")
    write_config(tmp_path, **changes)
    with pytest.raises(DamagedModel, match=says):
        opened(tmp_path)


def test_broken_json_and_missing_tensors_are_named(tmp_path: Path) -> None:
    tensors = random_tensors(write_config(tmp_path))
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(DamagedModel, match=r"model\.norm\.weight"):
        opened(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": [')
    with pytest.raises(DamagedModel, match=r"config\.json"):
        opened(tmp_path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 400), flips=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), max_size=3))
def test_damaged_shards_read_or_say_so(tmp_path: Path, cut: int, flips: list[tuple[int, int]]) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": np.ones((3, 4), np.float32), "b": np.zeros(5, np.float16)}, path)
    data = bytearray(path.read_bytes())
    for at, value in flips:
        data[at % len(data)] = value
    path.write_bytes(data[: max(0, len(data) - cut)] if cut < 300 else data)
    try:
        tensors = read_shard(path)
    except DamagedModel as error:
        assert "w.safetensors" in error.message  # noqa: PT017 (both outcomes are right)
    else:
        assert all(to_float32(raw).shape == raw.shape for raw in tensors.values())
