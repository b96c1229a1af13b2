"""The blocks of the page on the language, run in order, on the tiny model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from live_server import LiveServer

import palmette as sgl
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import LocalLink


def _frontend() -> Frontend:
    config = EngineConfig(model="tiny", kv_tokens=16384, threads=1)
    return build_frontend(config, resolve("tiny"), LocalLink(build_core(config, resolve("tiny"))))


@pytest.mark.server
@pytest.mark.parametrize("over_http", [False, True])
def test_every_block_runs(
    over_http: bool,
    root: Path,
    runtimes: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs" / "language.md").read_text(), re.DOTALL)
    assert len(blocks) >= 13
    names: dict[str, object] = {"__name__": "page"}
    with LiveServer(_frontend) as server:
        for block in blocks:
            if "RuntimeEndpoint" in block and not over_http:
                continue
            source = block.replace("http://127.0.0.1:30000", server.url)
            exec(compile(source, "docs/language.md", "exec", dont_inherit=True), names)
        assert isinstance(names["state"], sgl.ProgramState)
        assert names["state"].error() is not None, "the last block shows a failure"
    assert "Answer in one sentence." in capsys.readouterr().out
