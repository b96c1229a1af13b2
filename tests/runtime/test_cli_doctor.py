"""`palmette doctor`: a line for everything, and an exit code for the main job."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palmette.kernels.cpu.build import BuildError, detect_target, library_path
from palmette.runtime.cli.app import app
from palmette.runtime.cli.doctor import EXTRAS, examine
from palmette.runtime.config import DEFAULT_MODEL


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["doctor", *arguments], env={"NO_COLOR": "1", "COLUMNS": "200"})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALMETTE_CACHE", str(tmp_path))
    return tmp_path


def test_a_machine_that_can_run_models(cache: Path) -> None:
    result = invoke("-m", "tiny")
    assert result.exit_code == 0, result.output
    assert "Models can run here." in result.stdout
    for name in (
        "processor",
        "threads",
        "load",
        "memory",
        "Python",
        "torch",
        "cache",
        "model",
        "instructions",
    ):
        assert any(line.split()[:2][-1] == name for line in result.stdout.splitlines()), name
    assert "broken" not in result.stdout


def test_a_model_that_is_not_here_can_be_fetched(cache: Path) -> None:
    found = {finding.name: finding for finding in examine(DEFAULT_MODEL)}
    assert found["model"].state == "missing"
    assert f"palmette models fetch {DEFAULT_MODEL}" in found["model"].todo
    assert invoke().exit_code == 0


def test_a_model_that_is_none_is_broken(cache: Path) -> None:
    result = invoke("-m", "nope.gguf")
    assert result.exit_code == 1
    assert "nope.gguf" in result.stdout
    assert "see model" in result.stderr


def test_a_cache_that_cannot_be_written_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PALMETTE_CACHE", str(tmp_path / "file"))
    result = invoke("-m", "tiny")
    assert result.exit_code == 1
    assert "see cache" in result.stderr
    assert "set PALMETTE_CACHE" in result.stdout


def test_without_a_compiler_models_still_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palmette.kernels.cpu.build.COMPILERS", ("no-such-compiler",))
    found = {finding.name: finding for finding in examine("tiny")}
    assert found["compiler"].state == "missing"
    assert "Install one" in found["compiler"].todo
    assert "kernels" not in found
    assert all(finding.state != "broken" for finding in found.values())


def test_kernels_that_cannot_be_loaded(cache: Path) -> None:
    try:
        library = library_path(cache / "kernels", detect_target())
    except BuildError:
        pytest.skip("no C++ compiler")
    library.parent.mkdir()
    library.write_bytes(b"no library")
    found = {finding.name: finding for finding in examine("tiny")}
    assert found["kernels"].state == "missing"
    assert "delete it" in found["kernels"].todo


def test_a_lost_package_is_broken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palmette.runtime.cli.doctor.REQUIRED", ("numpy", "no_such_package"))
    found = {finding.name: finding for finding in examine("tiny")}
    assert found["packages"].state == "broken"
    assert "no_such_package" in found["packages"].what


def test_whatever_is_not_well_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palmette.kernels.cpu.build.COMPILERS", ("no-such-compiler",))
    monkeypatch.setattr("palmette.runtime.cli.doctor.SPARE_MEMORY", 1 << 60)
    monkeypatch.setattr("palmette.runtime.cli.doctor.SPARE_DISK", 1 << 60)
    found = list(examine("tiny"))
    assert {finding.name for finding in found if finding.state == "missing"} >= {
        "memory",
        "disk",
        "model",
        "compiler",
    }
    assert all(finding.todo for finding in found if finding.state in ("missing", "broken"))


def test_every_extra_has_a_line(root: Path) -> None:
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(declared) - {"test", "reference", "dev", "clients"}
