"""Hub names: what would be downloaded, and what is said when the hub can't be reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors

from palmette.runtime.checkpoint import hub
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.errors import ModelError, ModelNotFound


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def head(url: str, **options: Any) -> None:
        raise httpx.ConnectError("no route")

    monkeypatch.setattr(hub.httpx, "head", head)


def online(monkeypatch: pytest.MonkeyPatch, files: list[str], folder: Path) -> list[list[str]]:
    """A hub with these files; returns what was asked for."""
    asked: list[list[str]] = []

    def snapshot(repo: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(folder)

    monkeypatch.setattr(hub.httpx, "head", lambda url, **options: None)
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", lambda self, repo: files)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return asked


@pytest.mark.usefixtures("offline")
def test_offline_and_never_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(repo: str, local_files_only: bool) -> str:
        raise errors.LocalEntryNotFoundError("not here")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(ModelError, match="'some/model'") as caught:
        resolve("some/model")
    assert "online" in caught.value.hint
    assert "folder" in caught.value.hint


@pytest.mark.usefixtures("offline")
def test_offline_with_an_earlier_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda repo, local_files_only: str(tmp_path))
    assert hub.fetch_hub("some/model") == tmp_path
    (tmp_path / "m.gguf").write_bytes(b"")
    assert hub.fetch_hub("some/model") == tmp_path / "m.gguf"


def test_only_what_is_needed_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = ["config.json", "model.safetensors", "pytorch_model.bin", "original/x.pth", "m.gguf"]
    asked = online(monkeypatch, files, tmp_path)
    assert hub.fetch_hub("some/model") == tmp_path
    assert "*.safetensors" in asked[0]
    assert not any("bin" in pattern or "gguf" in pattern for pattern in asked[0])


def test_one_of_several_gguf_files_must_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = online(monkeypatch, ["a.Q4_0.gguf", "a.Q8_0.gguf", "README.md"], tmp_path)
    with pytest.raises(ModelNotFound, match="2 GGUF files") as caught:
        hub.fetch_hub("some/model")
    assert "some/model/a.Q8_0.gguf" in caught.value.hint
    assert hub.fetch_hub("some/model/a.Q8_0.gguf") == tmp_path / "a.Q8_0.gguf"
    assert asked == [["a.Q8_0.gguf"]]
    with pytest.raises(ModelNotFound, match=r"no file 'b\.gguf'"):
        hub.fetch_hub("some/model/b.gguf")
