"""Agent frameworks against a served default model: examples/clients and the README's program, as a user runs them.

They have a virtual environment of their own, made by `make clients`, since their dependencies are theirs.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import ROOT, serving

PYTHON = ROOT / ".venvs" / "clients" / "bin" / "python"
PROGRAMS = ROOT / "examples" / "clients"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.skipif(not PYTHON.exists(), reason="no frameworks; make clients installs them"),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(["--kv-tokens", "16384"]) as address:
        yield f"{address}/v1"


def run(program: Path, url: str) -> str:
    """The last line that the program prints."""
    done = subprocess.run([PYTHON, program, url], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


def test_pydantic_ai_gives_an_object(url: str) -> None:
    river = json.loads(run(PROGRAMS / "pydantic_ai_agent.py", url))
    assert river.keys() == {"name", "length_km", "continent"}
    assert 1 <= river["length_km"] <= 7000


def test_langchain_extracts_both_ways_and_streams(url: str) -> None:
    found = json.loads(run(PROGRAMS / "langchain_extraction.py", url))
    for method in ("json_schema", "function_calling"):
        assert found[method].keys() == {"name", "age", "job"}
        assert 0 <= found[method]["age"] <= 120
    assert len(found["streamed"]) > 20


def test_instructor_gives_a_list_of_objects(url: str) -> None:
    order = json.loads(run(PROGRAMS / "instructor_extraction.py", url))
    assert 1 <= len(order["items"]) <= 4
    assert all(item["kind"] in ("drink", "food") and 1 <= item["count"] <= 20 for item in order["items"])


def test_openai_agents_run_a_tool(url: str) -> None:
    result = json.loads(run(PROGRAMS / "openai_agents_loop.py", url))
    assert len(result["called"]) == 1
    assert result["answer"] == str(result["called"][0]["a"] + result["called"][0]["b"])


def test_the_readmes_agent(url: str, tmp_path: Path) -> None:
    program = next(
        block
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        if "pydantic_ai" in block
    )
    file = tmp_path / "agent.py"
    file.write_text(program.replace("http://127.0.0.1:30000/v1", url))
    assert run(file, url)
