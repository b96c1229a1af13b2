"""`palmette simulate`: tables, curves, files, and options that make no sense."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from palmette.runtime.cli.app import app


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)], env={"NO_COLOR": "1", "COLUMNS": "240"})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Conversations of a few blocks; every third comes back with its history."""
    path, rows, fresh = tmp_path / "trace.jsonl", [], 1
    histories: list[list[int]] = []
    for index in range(60):
        history = histories[index // 2] if index % 3 == 0 and index else [0]
        blocks = [*history, *range(fresh, fresh + 3)]
        fresh += 3
        histories.append(blocks)
        rows.append({"timestamp": index * 500, "input_length": 512 * len(blocks) - 9, "output_length": 40,
                     "hash_ids": blocks})  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_policies_and_sizes_beside_their_bounds(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = invoke(trace, "--policy", "longest_prefix", "--policy", "first_come", "--cache", "20%", "--cache", 60_000,
                    "--eviction", "lru", "--eviction", "lfu", "--out", out)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(("longest_prefix", "first_come"))]
    assert [(row[0], row[1]) for row in rows] == [
        (policy, eviction) for policy in ("longest_prefix", "first_come") for eviction in ("lru", "lfu") for _ in "12"
    ]
    for row in rows:
        hit, _, belady, infinite = map(float, row[4:8])
        assert 0 < hit <= infinite + 0.02
        assert belady <= infinite
    assert "Hit rate by cache size" in result.stdout
    assert ElementTree.parse(out / "simulate.svg").getroot().tag.endswith("svg")
    written = json.loads((out / "simulate.json").read_text())
    assert len(written["runs"]) == 8
    assert written["runs"][0]["requests"] == 60
    assert written["runs"][0]["first_token"]["p50"] > 0


def test_curves_as_png_where_there_is_a_renderer(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    assert invoke(trace, "--cache", "50%", "--out", tmp_path).exit_code == 0
    assert (tmp_path / "simulate.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_renderer_it_says_so(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    result = invoke(trace, "--cache", "50%", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "palmette[png]" in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"trace.jsonl", "simulate.svg", "simulate.json"}


def test_a_faster_trace_waits_longer(trace: Path) -> None:
    def waits(speed: float) -> str:
        result = invoke(trace, "--cache", "100%", "--speed", speed, "--devices", 1)
        assert result.exit_code == 0, result.stderr
        return next(line for line in result.stdout.splitlines() if line.startswith("longest_prefix"))

    assert " s " in waits(100.0)
    assert waits(1.0) != waits(100.0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--policy", "best"], "There are: longest_prefix"),
        (["--eviction", "none"], "The policies are"),
        (["--cache", "lots"], "For example 200000, 5% or 0.05"),
        (["--cache", "-5"], "no number of tokens"),
        (["--speed", "0"], "no positive number"),
        (["--cache", "100"], "less than one page"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_an_option_of_nonsense_is_wrong_usage(trace: Path, arguments: list[str], told: str) -> None:
    result = invoke(trace, *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_row_of_nonsense_is_named(trace: Path) -> None:
    with trace.open("a") as file:
        file.write('{"timestamp": 0, "input_length": 3}\n')
    result = invoke(trace)
    assert result.exit_code == 1
    assert "trace.jsonl:61: " in result.stderr
