"""The README's blocks, run as they stand: a first program, and a first server call from curl and from Python."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import LocalLink

pytestmark = pytest.mark.slow  # the default model


def blocks(root: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)


def test_the_first_program(root: Path) -> None:
    program = next(block for block in blocks(root, "python") if "import palmette" in block)
    source = root / "README.md"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, str(source), "exec"), {"__name__": "readme"})
    lines = printed.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line.split()[0] in ("good", "bad") for line in lines)
    assert all(int(line.split()[-1]) > 20 for line in lines[1:]), "the examples are computed once"


def _frontend() -> Frontend:
    config = EngineConfig()
    files = resolve(config.model)
    return build_frontend(config, files, LocalLink(build_core(config, files)))


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(_frontend) as running:
        yield running


@pytest.mark.server
def test_the_first_server_call_from_python(root: Path, server: LiveServer) -> None:
    program = next(block for block in blocks(root, "python") if "import OpenAI" in block)
    program = program.replace("http://127.0.0.1:30000", server.url)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    assert printed.getvalue().strip()


@pytest.mark.server
def test_the_first_server_call_from_curl(root: Path, server: LiveServer) -> None:
    console = next(block for block in blocks(root, "console") if "curl" in block)
    command = console[console.index("curl") :].replace("http://127.0.0.1:30000", server.url)
    done = subprocess.run(
        ["bash", "-c", f"exec {command.replace('curl', 'curl -s', 1)}"], capture_output=True, check=True
    )
    assert json.loads(done.stdout)["choices"][0]["message"]["content"].strip()
