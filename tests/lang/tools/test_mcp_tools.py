"""Tools of MCP servers: called from any loop, what goes wrong in them, servers that don't start."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import palmette as sgl
from palmette import McpServer, ToolCall, ToolSet
from palmette.lang.tools import mcp
from palmette.runtime.errors import InvalidRequest

EXAMPLE = str(Path(__file__).resolve().parents[3] / "examples" / "mcp_agent.py")
installed = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs the package mcp")


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(mcp.importlib, "import_module", missing)
    with pytest.raises(InvalidRequest, match=r"need the package mcp .*pip install 'palmette\[mcp\]'"):
        McpServer("x").__enter__()
    with pytest.raises(InvalidRequest, match="args='--serve' is not a list"):
        McpServer("x", "--serve")


def test_a_tool_of_a_schema_is_called_with_what_came() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

    async def double(x: int) -> int:
        return 2 * x

    tools = ToolSet([sgl.Tool.of_schema(double, name="double", description="Doubles.", parameters=schema)])
    assert tools.schemas[0]["function"] == {"name": "double", "description": "Doubles.", "parameters": schema}
    good, bad = tools.run([ToolCall("double", '{"x": 4}'), ToolCall("double", "{")])
    assert (good.value, bad.failed) == (8, True)
    assert tools.call.value('{"name": "double", "arguments": {"x": 1}}') == ToolCall("double", {"x": 1})


@installed
@pytest.mark.server
def test_a_server_is_started_called_and_ended() -> None:
    with McpServer(sys.executable, [EXAMPLE, "--serve"], only=["miles_to_kilometres"]) as tools:
        [tool] = tools
        assert tool.parameters["properties"]["miles"]["type"] == "number"
        assert tool.description == "Converts miles into kilometres."
        calls = [ToolCall(tool.name, {"miles": 10}), ToolCall(tool.name, {"miles": "far"})]
        for good, bad in (ToolSet(tools).run(calls), asyncio.run(ToolSet(tools).arun(calls))):
            assert good.text == "10 miles are 16.09 km"
            assert bad.failed
    [gone] = ToolSet(tools).run(calls[:1])
    assert "its MCP server has ended" in gone.text


@installed
@pytest.mark.server
def test_servers_that_are_none() -> None:
    with pytest.raises(mcp.ToolServerFailed, match="did not start"):
        McpServer("/no/such/program").__enter__()
    with pytest.raises(InvalidRequest, match=r"no tool 'x'.*It has miles_to_kilometres"):
        McpServer(sys.executable, [EXAMPLE, "--serve"], only=["x"]).__enter__()
