"""The blocks of the page on compiling, run in order, on the tiny model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.server
def test_every_block_runs(root: Path, tmp_path: Path, runtimes: None, capsys: pytest.CaptureFixture[str]) -> None:
    page = (root / "docs" / "compiling.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"compiling-{number}.py", "exec", dont_inherit=True), names)
    shown = capsys.readouterr().out
    assert "flowchart TD" in shown
    assert "compiling-2.py:4 in deciding" in shown
