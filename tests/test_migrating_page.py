"""The page on migrating: its programs run on the tiny model, and what its tables name is there, or refused by name."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import palmette as pt
from palmette.runtime.errors import Unsupported

FRAMEWORKS = ("SGLang", "guidance", "LMQL", "outlines", "plain OpenAI code")
REFUSED = ("image", "video", "gen_int", "gen_string", "Anthropic", "LiteLLM", "VertexAI", "ServerArgs",
           "get_server_info", "global_config")  # fmt: skip


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "migrating.md").read_text()


@pytest.mark.server
def test_every_program_runs(page: str, runtimes: None, capsys: pytest.CaptureFixture[str]) -> None:
    backend, *programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(programs) == 3
    exec(compile(backend, "docs/migrating.md", "exec", dont_inherit=True), {})
    few_shot, extraction, loop = (_ran(program) for program in programs)

    state = few_shot["state"]
    assert state["mood"] in (" good", " bad", " neither")
    assert len(state["reason"]) == 1
    assert state.get_meta_info("mood")["cached_tokens"] > 0

    assert type(extraction["invoice"]) is extraction["Invoice"]

    result = loop["result"]
    assert result.error is None
    assert isinstance(result.answer, str)
    assert result.calls
    assert all(not each.failed for step in result.steps for each in step.results)
    assert "weather(" in capsys.readouterr().out


def _ran(program: str) -> dict[str, Any]:
    """Each is whole: it runs with nothing of the others."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, "docs/migrating.md", "exec", dont_inherit=True), names)
    return names


def test_there_is_a_table_for_each_framework(page: str) -> None:
    for framework in FRAMEWORKS:
        section = page.partition(f"## From {framework}\n")[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| ")]
        assert len(rows) > 10, framework
        assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows), framework


def test_what_the_middle_columns_name_is_here(page: str) -> None:
    """`pt.name`, and arguments of pt.gen, pt.agent and programs' runs."""
    for name in set(re.findall(r"\bpt\.(\w+)", page)):
        assert name in pt.__all__, name
    for name, called in (("gen", pt.gen), ("agent", pt.agent)):
        arguments = inspect.signature(called).parameters
        for written in re.findall(rf"\bpt\.{name}\(([^()]*)\)", page):
            for argument in re.findall(r"\b(\w+)=", written):
                assert argument in arguments, f"{name}({argument}=…)"
    state = set(re.findall(r"\b(?:s|state)\.(\w+)\(", page))
    assert state
    assert all(hasattr(pt.ProgramState, name) for name in state), state


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_said_to_be_refused_is(page: str, name: str) -> None:
    assert f"`{name}`" in page
    with pytest.raises(Unsupported, match=name):
        getattr(pt, name)


def test_options_that_are_said_to_be_refused_are() -> None:
    for option in ({"logprob_start_len": 0}, {"return_text_in_logprobs": True}):
        with pytest.raises(Unsupported, match=next(iter(option))):
            pt.gen("x", **option)
    with pytest.raises(Unsupported, match="num_api_spec_tokens"):
        pt.function(num_api_spec_tokens=8)
