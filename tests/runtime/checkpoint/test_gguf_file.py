"""The GGUF reader: the same as the gguf library on sound files, DamagedModel on every damaged one."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
import small_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palmette.runtime.checkpoint.gguf_file import GgufFile
from palmette.runtime.errors import DamagedModel

Q = gguf.GGMLQuantizationType
WRITABLE = [Q.F32, Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0]
K_QUANTS = [Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K]


def by_definition(data: np.ndarray, kind: Q) -> np.ndarray | None:
    """Dequantisation written from the formats' definition; None for forms that aren't written out here."""
    if kind == Q.Q8_0:
        blocks = data.reshape(-1, 34)
        scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
        return scale * blocks[:, 2:].view(np.int8).astype(np.float32)
    if kind in (Q.Q4_0, Q.Q4_1):
        head = 2 if kind == Q.Q4_0 else 4
        blocks = data.reshape(-1, head + 16)
        scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
        codes = np.concatenate([blocks[:, head:] & 15, blocks[:, head:] >> 4], axis=1).astype(np.float32)
        if kind == Q.Q4_0:
            return scale * (codes - 8)
        return scale * codes + blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    return None


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
def test_dequantises_what_the_library_wrote(tmp_path: Path, kind: Q) -> None:
    path = small_gguf.write_llama(tmp_path / "model.gguf", quantised=kind)
    file = GgufFile(path)
    reference = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert file.tensors.keys() == reference.keys()
    for name, tensor in reference.items():
        info = file.tensors[name]
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        found = file.dequantize(name)
        assert found.dtype == np.float32
        assert np.array_equal(found, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        defined = by_definition(np.asarray(info.data), tensor.tensor_type)
        if defined is not None:
            assert np.array_equal(found, defined.reshape(info.shape))


@pytest.mark.parametrize("kind", K_QUANTS, ids=lambda kind: kind.name)
def test_dequantises_k_quants(tmp_path: Path, kind: Q) -> None:
    path = tmp_path / "k.gguf"
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(3).integers(0, 60, (6, 2 * size), dtype=np.uint8)  # small halves: no NaN scales
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("w", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = GgufFile(path).dequantize("w")
    assert found.shape == (6, 2 * elements)
    assert np.array_equal(found, gguf.quants.dequantize(blocks, kind))


def test_metadata_is_the_librarys(tmp_path: Path) -> None:
    path = small_gguf.write_llama(
        tmp_path / "model.gguf",
        metadata={"a.list": [1.5, -2.0], "a.words": ["ä", "", "x y"], "a.flag": True, "a.text": "日本", "a.number": 7},
    )
    file = GgufFile(path)
    for key, field in gguf.GGUFReader(path).fields.items():
        if not key.startswith("GGUF."):
            assert file.metadata[key] == field.contents(), key


def test_version_two_is_read(tmp_path: Path) -> None:
    path = small_gguf.write_llama(tmp_path / "model.gguf")
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    path.write_bytes(data)
    assert GgufFile(path).version == 2


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"", "0 bytes"),
        (b"PK\x03\x04" + bytes(40), "PK"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(40), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(40), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "metadata"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63) + bytes(8), "metadata entry 0"),
    ],
)
def test_wrong_heads_are_named(tmp_path: Path, head: bytes, says: str) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(head)
    with pytest.raises(DamagedModel, match=says) as caught:
        GgufFile(path)
    assert "wrong.gguf" in str(caught.value)
    assert caught.value.hint


def test_a_missing_file_and_a_folder_are_errors_of_ours(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(DamagedModel):
            GgufFile(path)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = small_gguf.write_llama(tmp_path / "model.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    padding = 32  # behind the last tensor; nothing is lost with it
    for cut in [*range(0, 3000, 11), *range(3000, len(whole) - padding, 997), len(whole) - padding - 1]:
        path.write_bytes(whole[:cut])
        with pytest.raises(DamagedModel):
            GgufFile(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flips=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), min_size=1, max_size=4),
    wide=st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([2**31, 2**63, 2**64 - 1, 0])), max_size=1),
)
def test_flipped_bytes_read_or_say_damaged(
    tmp_path: Path, flips: list[tuple[int, int]], wide: list[tuple[int, int]]
) -> None:
    sound = tmp_path / "sound.gguf"
    if not sound.exists():
        small_gguf.write_llama(sound)
    data = bytearray(sound.read_bytes())
    for at, value in flips:
        data[at % len(data)] = value
    for at, value in wide:
        data[at : at + 8] = struct.pack("<Q", value)
    path = tmp_path / "flipped.gguf"
    path.write_bytes(data)
    started = time.monotonic()
    try:
        file = GgufFile(path)
    except DamagedModel as error:
        assert "flipped.gguf" in error.message  # noqa: PT017 (both outcomes are right)
    else:
        assert all(info.data.size for info in file.tensors.values())
    assert time.monotonic() - started < 2.0
