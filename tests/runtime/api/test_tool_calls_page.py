"""The page on tool calls: its blocks run, and it names every format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from live_server import LiveServer

from palmette.runtime.parsers.registry import names


def test_the_blocks_run_in_order(root: Path, tiny: LiveServer) -> None:
    page = (root / "docs" / "tool-calls.md").read_text()
    scope: dict[str, Any] = {"server": tiny.url}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 4
    for block in blocks:
        exec(block, scope)
    assert scope["final"].choices[0].finish_reason in ("stop", "length")
    assert len(scope["city"]) <= 20  # of a random model it may be empty
    output = tiny.call(scope["talk"](tiny.frontend))
    assert [call.name for call in output.calls] == ["now"]


def test_every_format_is_named(root: Path) -> None:
    page = (root / "docs" / "tool-calls.md").read_text()
    known = names()
    assert [name for name in (*known.tools, *known.reasoning) if f"`{name}`" not in page] == []
