"""`palmette trace`: a table of a saved trace, and its timeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from palmette.lang.traces.trace import Trace, TracedCall
from palmette.runtime.cli.app import app
from palmette.runtime.messages.replies import Usage


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    usage = Usage(prompt_tokens=12, cached_tokens=7, computed_tokens=5, completion_tokens=3, queue_seconds=0.0011)
    calls = [
        TracedCall(kind="gen", name="answer", start=0.0, first=0.01, end=0.02, text="two\nlines", usage=usage),
        TracedCall(kind="tool", name="look[up]", start=0.03, first=0.05, end=0.05, text="found"),
        TracedCall(kind="gen", state="1.0/", name="x", start=0.05, first=0.06, end=0.06, failed=True, error="gone"),
    ]
    Trace(calls, {"task": "Find it"}).save(tmp_path / "run.jsonl")
    return tmp_path / "run.jsonl"


def test_the_table_and_the_timeline(saved: Path) -> None:
    for name in ("t.svg", "t.html"):
        result = CliRunner().invoke(app, ["trace", str(saved), "--timeline", str(saved.parent / name)])
        assert result.exit_code == 0, result.output
        row = next(line for line in result.output.splitlines() if "gen answer" in line)
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert cells == ["", "gen answer", "0.0", "20.0", "1.1", "10.0", "7", "5", "3", "two⏎lines"]
        assert "look[up]" in result.output
        assert "3 calls in 60.0 ms: 30.0 with the model, 20.0 in tools, 10.0 in neither." in result.output
        assert "Find it" in (saved.parent / name).read_text()


def test_what_is_no_trace_or_no_picture(saved: Path) -> None:
    assert CliRunner().invoke(app, ["trace", str(saved), "--timeline", "x.png"]).exit_code == 2
    saved.write_text("no\n")
    result = CliRunner().invoke(app, ["trace", str(saved)])
    assert result.exit_code != 0


def test_an_empty_trace_and_a_file_that_is_none_are_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    Trace([]).save(empty)
    result = CliRunner().invoke(app, ["trace", str(empty)])
    assert result.exit_code == 0
    assert "The trace has no calls" in result.output
    other = tmp_path / "other.txt"
    other.write_text("import this\n")
    result = CliRunner().invoke(app, ["trace", str(other)])
    assert result.exit_code != 0
    assert "is no trace: line 1: JSON is malformed: invalid character (byte 0). Write traces" in " ".join(
        result.output.split()
    )
