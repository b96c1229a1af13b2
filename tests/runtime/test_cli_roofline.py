"""`palmette roofline`, and what it reads from a model's files."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.cli.app import app
from palmette.runtime.cli.roofline import figure, seconds, shape_of, stored_weights
from palmette.runtime.roofline.shape import PRESETS, model_shape


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["roofline", *arguments], env={"NO_COLOR": "1", "COLUMNS": "200"})


def test_a_70b_model_on_an_h100(tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    result = invoke("-m", "llama-3-70b", "-d", "h100", "--out", str(picture))
    assert result.exit_code == 0, result.stderr
    assert "327,680 bytes a token" in result.stdout
    assert "one stream decodes at best 24.1 tokens/s" in result.stdout
    assert "at least 2 of them are needed" in result.stdout
    assert "3,314 (batch 128)" in result.stdout
    first = next(line.split() for line in result.stdout.splitlines() if line.startswith("decode"))
    assert first == ["decode", "1*", "1,024", "139", "GB", "0%", "1.02", "weights", "41.6", "ms", "24"]
    assert "X batch 128: 3,314" in result.stdout
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_the_picture_in_the_documentation_is_what_the_command_writes(root: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    assert invoke("-m", "llama-3.1-70b", "-d", "h100", "-o", str(picture)).exit_code == 0
    assert picture.read_text() == (root / "docs" / "roofline-70b-h100.svg").read_text()


def test_two_of_them_hold_it() -> None:
    result = invoke("-m", "llama-3-70b", "-d", "h200", "--devices", "2", "-b", "4", "-c", "2048")
    assert result.exit_code == 0
    assert "2 × H200" in result.stdout
    assert "needed" not in result.stdout
    rows = [line for line in result.stdout.splitlines() if line.startswith(("decode", "prefill"))]
    assert len(rows) == 2
    assert "4*" not in rows[0]


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 32), ("bf16", 16), ("q4_k", 4.5)])
def test_another_dtype(dtype: str, bits: float) -> None:
    shape = shape_of("llama-3-8b", dtype, "fp8")
    assert shape == model_shape(PRESETS["llama-3-8b"], shape.weights, "fp8")
    norms = (2 * 32 + 1) * 4096 * 4
    assert (shape.weight_bytes - norms) * 8 / (shape.block_parameters + shape.head_parameters) == bits


def test_a_model_of_this_machine_is_counted_as_stored() -> None:
    checkpoint = open_checkpoint(resolve("tiny"))
    stored = stored_weights(checkpoint)
    shape = shape_of("tiny")
    assert shape.weights == stored.format
    tensors = [checkpoint.tensor(name) for name in checkpoint.tensor_names()]
    nbytes = sum(raw.data.nbytes for raw in tensors if len(raw.shape) == 2)
    norms = 4 * sum(math.prod(raw.shape) for raw in tensors if len(raw.shape) == 1)
    assert shape.resident_bytes == nbytes + norms


def test_this_machine_is_measured_first() -> None:
    result = invoke("-m", "tiny", "--threads", "1")
    assert result.exit_code == 0, result.stderr
    assert "this machine (1 thread)" in result.stdout
    assert "Measuring this machine (load average" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "b9000"], "There are: h100, h200, this."),
        (["-d", "h100", "-m", "llama-3-8b", "--dtype", "int5"], "--dtype 'int5' is not known"),
        (["-d", "h100", "-m", "llama-3-8b", "--kv-dtype", "q4_0"], "--kv-dtype 'q4_0' is not known"),
        (["-d", "h100", "-m", "llama-3-8b", "-b", "1,x"], "'1,x' is not a list"),
        (["-d", "h100", "-m", "llama-3-8b", "-c", "0"], "'0' is not a list"),
        (["-d", "h100", "-m", "llama-3-8b", "--threads", "2"], "--threads is for --device this"),
    ],
)
def test_wrong_usage_says_what_there_is(arguments: list[str], message: str) -> None:
    result = invoke(*(["-m", "tiny"] if "-m" not in arguments else []), *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_figures() -> None:
    assert [figure(value) for value in (0.1234, 12.34, 99.96, 1234.5)] == ["0.123", "12.3", "100", "1,234"]
    assert [seconds(value) for value in (2.5e-6, 0.0123, 1.5)] == ["2.5 µs", "12.3 ms", "1.5 s"]
