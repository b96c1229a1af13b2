"""GGUF's block types in native form: their quants unchanged, their products close to float64, files of mixed types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from test_cpu import Doubles, as_int8_sees_it, library, meaning  # noqa: F401

from palmette.kernels.cpu.build import BuildError, find_compiler
from palmette.kernels.cpu.gguf_blocks import unpack_gguf
from palmette.kernels.cpu.library import Library, Weight
from palmette.kernels.cpu.packing import pack_quantised
from palmette.kernels.protocol import Batch
from palmette.runtime.models.loading import Model, load_model

Q = gguf.GGMLQuantizationType
EXACT = (Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.IQ4_NL)
ROUNDED = (Q.Q4_K, Q.Q5_K, Q.Q6_K)  # a scale or minimum that is a product, rounded to a half
SCALES = {
    Q.Q4_1: (0, 2),
    Q.Q5_1: (0, 2),
    Q.Q4_K: (0, 2),
    Q.Q5_K: (0, 2),
    Q.Q6_K: (208,),
    Q.Q2_K: (80, 82),
}  # where the halves lie


def random_blocks(kind: Q, outputs: int, inputs: int, seed: int, spread: float = 0.01) -> np.ndarray[Any, Any]:
    """Any bytes are blocks once their halves are ordinary numbers."""
    generator = np.random.default_rng(seed)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (outputs, inputs // elements, size)).astype(np.uint8)
    for at in SCALES.get(kind, (0,)):
        halves = (generator.standard_normal(blocks.shape[:2]) * spread).astype(np.float16)
        blocks[:, :, at : at + 2] = halves[..., None].view(np.uint8)
    return blocks.reshape(outputs, -1)


@pytest.mark.parametrize("kind", [*EXACT, *ROUNDED], ids=lambda kind: kind.name)
@pytest.mark.parametrize("spread", [3e-4, 0.01, 10])
def test_a_block_keeps_its_quants_and_means_the_same(kind: Q, spread: float) -> None:
    blocks = random_blocks(kind, 5, 512, 1, spread)
    weight = unpack_gguf(kind.name.lower(), blocks.reshape(-1), (5, 512))
    assert weight is not None
    exact = gguf.quants.dequantize(blocks, kind).astype(np.float64)
    error = np.abs(meaning(weight) - exact)
    if kind in EXACT:
        assert (error <= 1e-7 * np.abs(exact).max()).all()  # the library's own rounding to float32
        return
    # Half a unit in the last place of the scale, times the quant, and of the minimum; halves end at 2^-25.
    zero = 0 if weight.minima is None else 128
    scales = np.abs(weight.scales.astype(np.float64)).reshape(5, 16, -1)
    quants = np.abs(weight.quants.astype(np.float64) - zero)
    bound = quants * (scales * 2.0**-11 + 2.0**-25).repeat(32 // scales.shape[2], axis=2)
    if weight.minima is not None:
        bound += (np.abs(weight.minima.astype(np.float64)) * 2.0**-11 + 2.0**-25)[..., None]
    assert (error <= bound.reshape(5, 512) * 1.01).all()


@pytest.mark.parametrize("kind", [*EXACT, *ROUNDED], ids=lambda kind: kind.name)
def test_products_with_a_block_type_are_close_to_float64(library: Library, kind: Q) -> None:  # noqa: F811
    blocks = random_blocks(kind, 40, 512, 3)
    unpacked = unpack_gguf(kind.name.lower(), blocks.reshape(-1), (40, 512))
    assert unpacked is not None
    weight = Weight(unpacked.format, 40, 512, pack_quantised(unpacked))
    x = np.random.default_rng(4).standard_normal((7, 512)).astype(np.float32)
    seen, exact = as_int8_sees_it(x), gguf.quants.dequantize(blocks, kind).astype(np.float64)
    found = library.linear(weight, x)
    assert (np.abs(found - seen @ exact.T) <= np.abs(seen) @ np.abs(exact).T * 1e-3).all()
    assert (np.abs(found - seen @ meaning(unpacked).T) <= np.abs(seen) @ np.abs(exact).T * 1e-5).all()
    tokens = np.array([39, 0, 17], np.int32)
    assert np.allclose(library.embed(weight, tokens), meaning(unpacked)[tokens], rtol=1e-6, atol=1e-9)


def test_scales_that_no_half_holds_are_left_to_bfloat16() -> None:
    blocks = random_blocks(Q.Q4_K, 1, 256, 0)
    blocks[0, :2] = np.array([60000], np.float16).view(np.uint8)
    blocks[0, 4] = 63
    assert unpack_gguf("q4_k", blocks.reshape(-1), (1, 256)) is None
    assert unpack_gguf("q2_k", random_blocks(Q.Q2_K, 1, 256, 0).reshape(-1), (1, 256)) is None


HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, VOCABULARY = 256, 512, 2, 4, 2, 96
MATRICES = {
    "attn_q": (HIDDEN, HIDDEN), "attn_k": (KV_HEADS * 64, HIDDEN), "attn_v": (KV_HEADS * 64, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN), "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
}  # fmt: skip
# As llama.cpp's mixtures do it: another type for v and down in some layers; and some that it never writes.
MIXTURES: dict[str, list[dict[str, Q]]] = {
    "q4_k_m": [{"attn_v": Q.Q6_K, "ffn_down": Q.Q6_K}, {}],
    "q5_k_and_floats": [
        {"attn_q": Q.Q5_K, "attn_k": Q.BF16, "attn_v": Q.Q8_0, "ffn_down": Q.Q5_1},
        {"attn_output": Q.F32, "ffn_gate": Q.Q6_K, "attn_v": Q.Q2_K},
    ],
}


def write_mixture(path: Path, mixture: str) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {
        "context_length": 256, "embedding_length": HIDDEN, "block_count": LAYERS, "feed_forward_length": INNER,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
    }.items():  # fmt: skip
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    seed = 0

    def add(name: str, shape: tuple[int, int], kind: Q) -> None:
        nonlocal seed
        seed += 1
        if kind in (Q.F32, Q.BF16):
            values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.05
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            spread = {Q.Q2_K: 4e-3, Q.Q4_K: 2e-4, Q.Q5_K: 1e-4, Q.Q6_K: 3e-5, Q.Q8_0: 1e-3, Q.Q5_1: 3e-3}[kind]
            writer.add_tensor(name, random_blocks(kind, *shape, seed, spread), raw_dtype=kind)

    add("token_embd.weight", (VOCABULARY, HIDDEN), Q.Q6_K)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for layer, kinds in enumerate(MIXTURES[mixture]):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(HIDDEN, np.float32))
        for name, shape in MATRICES.items():
            add(f"blk.{layer}.{name}.weight", shape, kinds.get(name, Q.Q4_K))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def logits(model: Model, chunks: list[int]) -> torch.Tensor:
    """Of every position of one sequence, computed in chunks."""
    store, tokens, done, found = model.new_store(8, 16), np.arange(sum(chunks), dtype=np.int32) * 7 % VOCABULARY, 0, []
    for count in chunks:
        at = np.arange(done, done + count, dtype=np.int32)
        done += count
        starts, table, every = (np.array(x, np.int32) for x in ([0, count], [range(8)], range(count)))
        found.append(model.forward(Batch(tokens[at], at, at, starts, table, every, 16), store).clone())
    return torch.cat(found)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_a_file_of_mixed_types(tmp_path: Path, mixture: str) -> None:
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    path = write_mixture(tmp_path / "mixed.gguf", mixture)
    native = load_model(str(path), kernels="cpu", threads=1, cached=False)
    torch_model = load_model(str(path), kernels="portable", dtype="float32", cached=False)
    found, expected = logits(native, [20]), logits(torch_model, [20])
    assert torch.equal(found, logits(native, [1, 3, 16]))
    error = (found - expected).norm() / expected.norm()
    assert error < 0.03, error  # int8 activations, bfloat16 KV and weights
