"""Loading: dtypes, prepared files, their damage and their identity."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from model_cases import whole

from palmette.kernels.portable.row_blocks import same_bits
from palmette.kernels.select import KernelName
from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DType
from palmette.runtime.errors import InvalidRequest, UnknownArchitecture
from palmette.runtime.models import registry
from palmette.runtime.models.backends import Backend, choose_backend, multiplies_bfloat16, resolve_dtype
from palmette.runtime.models.loading import build_model, load_model, prepare
from palmette.runtime.models.prepared import Prepared, load_or_prepare, prepared_path

TOKENS = tuple(range(3, 40))


CHECKPOINT = open_checkpoint(resolve("tiny"))
KERNELS = ("portable", "cpu")


def backend(kernels: KernelName, dtype: DType = "bfloat16") -> Backend:
    return choose_backend(CHECKPOINT.config, dtype, kernels, 1)


@pytest.fixture(params=KERNELS)
def kernels(request: pytest.FixtureRequest) -> KernelName:
    chosen: KernelName = request.param
    return chosen


@pytest.fixture
def prepared(kernels: KernelName) -> Prepared:
    return prepare(CHECKPOINT, backend(kernels))


def never() -> Prepared:
    raise AssertionError("prepared a second time")


def test_a_second_start_maps_what_the_first_prepared(tmp_path: Path, prepared: Prepared) -> None:
    path = tmp_path / "deep" / "tiny.safetensors"
    first = load_or_prepare(path, lambda: prepared)
    second = load_or_prepare(path, never)
    assert second.config == prepared.config
    assert first.digest == second.digest == prepared.digest
    assert second.tensors.keys() == prepared.tensors.keys()
    for name, tensor in prepared.tensors.items():
        assert same_bits(second.tensors[name], tensor)
        assert second.tensors[name].data_ptr() % 64 == 0
    assert [file.suffix for file in path.parent.iterdir() if file.suffix != ".lock"] == [".safetensors"]


@pytest.mark.parametrize("kept", [0, 7, 300, -100])
def test_a_damaged_prepared_file_is_made_again(tmp_path: Path, prepared: Prepared, kept: int) -> None:
    path = tmp_path / "tiny.safetensors"
    load_or_prepare(path, lambda: prepared)
    path.write_bytes(path.read_bytes()[:kept])
    again = load_or_prepare(path, lambda: prepared)
    assert again.digest == prepared.digest
    load_or_prepare(path, never)


def test_the_file_s_name_follows_its_sources(tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(b"one")
    files = ModelFiles(name="m", kind="gguf", path=source)
    first = prepared_path(tmp_path, files, "float32")
    assert first == prepared_path(tmp_path, files, "float32")
    assert first != prepared_path(tmp_path, files, "native-float32")
    source.write_bytes(b"other")
    assert first != prepared_path(tmp_path, files, "float32")


def test_a_model_from_a_prepared_file_has_the_same_bits(
    tmp_path: Path, prepared: Prepared, kernels: KernelName
) -> None:
    mapped = load_or_prepare(tmp_path / "tiny.safetensors", lambda: prepared)
    fresh = load_model("tiny", "bfloat16", kernels)
    read = build_model(mapped, backend(kernels))
    assert same_bits(whole(fresh, TOKENS), whole(read, TOKENS))
    assert fresh.numerics_id == read.numerics_id


def test_numerics_id_tells_what_changes_bits() -> None:
    ids = {
        load_model("tiny", dtype, kernels).numerics_id
        for dtype in ("float32", "bfloat16")
        for kernels in ("portable", "reference", "cpu")
    }
    assert len(ids) == 6


def test_the_head_keeps_more_digits_than_bfloat16() -> None:
    assert prepare(CHECKPOINT, backend("portable")).tensors["head"].dtype == torch.float16
    single = prepare(CHECKPOINT, backend("portable", "float32"))
    assert {tensor.dtype for tensor in single.tensors.values()} == {torch.float32}


def test_dtypes() -> None:
    assert resolve_dtype("auto") == (torch.bfloat16 if multiplies_bfloat16() else torch.float32)
    assert resolve_dtype("float32") == torch.float32
    with pytest.raises(InvalidRequest, match="'float8'"):
        resolve_dtype("float8")  # type: ignore[arg-type]


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(UnknownArchitecture, match="'mamba'"):
        registry.family("mamba")


def test_without_a_compiler_plain_torch_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("palmette.kernels.cpu.build.COMPILERS", ("no-such-compiler",))
    assert load_model("tiny").kernels == "portable"
    assert "No C++ compiler was found" in caplog.text
    with pytest.raises(InvalidRequest, match="No C\\+\\+ compiler"):
        load_model("tiny", kernels="cpu")


def test_kv_in_int8() -> None:
    """Native code has it, with numerics of its own; plain torch says that it hasn't."""
    plain, small = (load_model("tiny", "bfloat16", "cpu", kv_dtype=kv) for kv in ("auto", "int8"))
    assert (plain.kv_dtype, small.kv_dtype) == ("bfloat16", "int8")
    assert small.numerics_id != plain.numerics_id
    assert small.bytes_per_token < plain.bytes_per_token * 0.6
    with pytest.raises(InvalidRequest, match="kv_dtype='int8' needs the native kernels"):
        load_model("tiny", "bfloat16", "portable", kv_dtype="int8")
    with pytest.raises(InvalidRequest, match="'int4' is not known"):
        load_model("tiny", kv_dtype="int4")  # type: ignore[arg-type]


def test_kv_bytes_and_store_agree(kernels: KernelName) -> None:
    model = load_model("tiny", "float32", kernels)
    assert model.new_store(2, 4).bytes_per_token == model.bytes_per_token
