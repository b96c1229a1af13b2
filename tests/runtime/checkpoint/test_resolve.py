"""A name to files: what is found, and what each wrong name is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_gguf

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.errors import DamagedModel, ModelNotFound, UnknownArchitecture


def test_a_file_and_its_folder(tmp_path: Path) -> None:
    path = small_gguf.write_llama(tmp_path / "model.gguf")
    assert resolve(str(path)).path == path
    assert resolve(str(tmp_path)).path == path
    assert resolve(str(tmp_path)).kind == "gguf"
    small_gguf.write_llama(tmp_path / "second.gguf")
    with pytest.raises(ModelNotFound, match="2 GGUF files") as caught:
        resolve(str(tmp_path))
    assert str(path) in caught.value.hint


def test_a_misspelt_name_gets_the_close_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="'smollm-135m'") as caught:
        resolve("smollm-135m")
    assert "'smollm2-135m'" in caught.value.hint
    path = small_gguf.write_llama(tmp_path / "model.gguf")
    with pytest.raises(ModelNotFound) as caught:
        resolve(str(tmp_path / "modle.gguf"))
    assert str(path) in caught.value.hint
    with pytest.raises(ModelNotFound) as caught:
        resolve("")
    assert "tiny" in caught.value.hint


def test_what_is_no_model_is_named_before_anything_starts(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello, I am not a model at all")
    with pytest.raises(DamagedModel, match=r"notes\.txt"):
        resolve(str(text))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match="holds no model"):
        resolve(str(tmp_path / "empty"))
    (tmp_path / "empty" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        resolve(str(tmp_path / "empty"))
    with pytest.raises(ModelNotFound, match="one file of a model"):
        resolve(str(tmp_path / "empty" / "model.safetensors"))
    with pytest.raises(UnknownArchitecture, match="mamba"):
        resolve(str(small_gguf.write_llama(tmp_path / "m.gguf", architecture="mamba")))


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    path = small_gguf.write_llama(tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DamagedModel, match="the file ends at") as caught:
        resolve(str(path))
    assert "fetch or copy it again" in caught.value.hint
