"""The blocks of the page on structured generation, run in order."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_block_runs(root: Path) -> None:
    page = (root / "docs" / "structured-generation.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "docs/structured-generation.md", "exec"), names)
