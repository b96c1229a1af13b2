"""A llama GGUF file as a checkpoint: names, configuration, and q and k back in halves order."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import small_gguf
from small_gguf import HEAD_DIM, HEADS, KV_HEADS, write_llama

from palmette.runtime.checkpoint.config import FrequencyRope, LinearRope
from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.llama import tensor_shapes
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.errors import DamagedModel, ModelError, UnknownArchitecture


def opened(path: Path) -> Checkpoint:
    return open_checkpoint(ModelFiles(name="m", kind="gguf", path=path))


def rotate_interleaved(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """The rotary embedding that stored q and k are meant for: elements 2i and 2i + 1 are a pair."""
    out = np.empty_like(x)
    out[0::2] = x[0::2] * np.cos(angles) - x[1::2] * np.sin(angles)
    out[1::2] = x[0::2] * np.sin(angles) + x[1::2] * np.cos(angles)
    return out


def rotate_halves(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Ours: elements i and i + half are a pair."""
    half = len(x) // 2
    first, second = x[:half], x[half:]
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)]
    )


def test_tensors_have_canonical_names_and_halves_order(tmp_path: Path) -> None:
    values = small_gguf.tensors()
    checkpoint = opened(write_llama(tmp_path / "m.gguf", quantised=gguf.GGMLQuantizationType.F32, values=values))
    assert set(checkpoint.tensor_names()) == set(tensor_shapes(checkpoint.config))
    pairs = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    for ours, theirs in pairs.items():
        found = to_float32(checkpoint.tensor(f"model.layers.1.{ours}.weight"))
        assert np.array_equal(found, values[f"blk.1.{theirs}.weight"]), ours


def test_attention_scores_are_those_of_the_stored_layout(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf", quantised=gguf.GGMLQuantizationType.Q8_0)
    checkpoint = opened(path)
    stored = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors
    }
    x = np.random.default_rng(1).standard_normal((2, small_gguf.HIDDEN)).astype(np.float32)
    frequencies = 50000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    q = to_float32(checkpoint.tensor("model.layers.0.self_attn.q_proj.weight")) @ x[0]
    k = to_float32(checkpoint.tensor("model.layers.0.self_attn.k_proj.weight")) @ x[1]
    stored_q, stored_k = stored["blk.0.attn_q.weight"] @ x[0], stored["blk.0.attn_k.weight"] @ x[1]
    for head in range(HEADS):
        mine = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        kv_head = head // (HEADS // KV_HEADS)
        its = slice(kv_head * HEAD_DIM, (kv_head + 1) * HEAD_DIM)
        ours = rotate_halves(q[mine], 5 * frequencies) @ rotate_halves(k[its], 2 * frequencies)
        theirs = rotate_interleaved(stored_q[mine], 5 * frequencies) @ rotate_interleaved(
            stored_k[its], 2 * frequencies
        )
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_configuration(tmp_path: Path) -> None:
    config = opened(write_llama(tmp_path / "m.gguf")).config
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (40, 64, 96)
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (2, 4, 2, 16)
    assert config.rms_eps == pytest.approx(1e-5)
    assert (config.rope_theta, config.context_length, config.rope_scaling) == (50000.0, 256, None)
    assert config.tie_embeddings


def test_an_output_tensor_unties_and_rope_frequencies_scale(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, HEAD_DIM // 2, dtype=np.float32)
    head = np.ones((40, 64), np.float32)
    checkpoint = opened(write_llama(tmp_path / "m.gguf", extra={"output.weight": head, "rope_freqs.weight": factors}))
    assert not checkpoint.config.tie_embeddings
    assert "lm_head.weight" in checkpoint.tensor_names()
    assert "rope_freqs.weight" not in checkpoint.tensor_names()
    assert checkpoint.config.rope_scaling == FrequencyRope(tuple(factors.tolist()))


def test_linear_scaling_and_refused_kinds(tmp_path: Path) -> None:
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert opened(write_llama(tmp_path / "l.gguf", metadata=linear)).config.rope_scaling == LinearRope(4.0)
    for metadata, says in (
        ({"llama.rope.scaling.type": "yarn"}, "yarn"),
        ({"llama.expert_count": 8}, "8 experts"),
        ({"split.count": 3}, "split"),
        ({"llama.rope.dimension_count": 8}, "8 of 16"),
    ):
        with pytest.raises(UnknownArchitecture, match=says):
            opened(write_llama(tmp_path / "r.gguf", metadata=metadata))


def test_an_unknown_architecture_is_named_with_what_is_supported(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match="'mamba'") as caught:
        opened(write_llama(tmp_path / "m.gguf", architecture="mamba"))
    assert "llama" in caught.value.hint


def test_a_missing_or_misshapen_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedModel, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        opened(write_llama(tmp_path / "m.gguf", without=("blk.1.ffn_up.weight",)))
    values = small_gguf.tensors() | {"output_norm.weight": np.ones(65, np.float32)}
    with pytest.raises(DamagedModel, match=r"\(65,\)"):
        opened(write_llama(tmp_path / "n.gguf", values=values))


@pytest.mark.parametrize("key", ["block_count", "attention.head_count", "attention.head_count_kv", "context_length"])
@pytest.mark.parametrize("value", [0, 2**32 - 1, "x"])
def test_impossible_sizes_are_refused(tmp_path: Path, key: str, value: int | str) -> None:
    with pytest.raises(ModelError) as caught:
        opened(write_llama(tmp_path / "m.gguf", metadata={f"llama.{key}": value}))
    assert "m.gguf" in caught.value.message
    assert caught.value.hint
