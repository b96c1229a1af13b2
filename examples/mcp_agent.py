"""An agent with the tools of an MCP server, which is this very file, started as a program of its own.

Any MCP server takes its place: McpServer("uvx", ["mcp-server-time"]) and so on. Needs the extra: palmette[mcp].

    palmette run examples/mcp_agent.py
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import palmette as sgl

TASK = "Convert 12 miles into kilometres."


def serve() -> None:
    """The server's side: tools for whoever starts it."""
    try:
        server: Any = importlib.import_module("mcp.server.mcpserver").MCPServer("units")
    except ImportError:  # version 1 of the package
        server = importlib.import_module("mcp.server.fastmcp").FastMCP("units")

    @server.tool()
    def miles_to_kilometres(miles: float) -> str:
        """Converts miles into kilometres."""
        return f"{miles:g} miles are {1.609344 * miles:.2f} km"

    @server.tool()
    def fahrenheit_to_celsius(degrees: float) -> str:
        """Converts degrees Fahrenheit into degrees Celsius."""
        return f"{degrees:g} F are {(degrees - 32) / 1.8:.1f} C"

    server.run()


def convert(task: str, **options: Any) -> sgl.AgentResult:
    with sgl.McpServer(sys.executable, [__file__, "--serve"], timeout=20.0) as tools:
        converter = sgl.agent(
            tools,
            instructions="You convert units. Use a tool for each conversion.",
            steps=2,
            least_calls=1,
            step_tokens=96,
            answer_tokens=96,
        )
        return converter.run(task, **options)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        result = convert(TASK, temperature=0.0)
        for step in result.steps:
            for call, each in zip(step.calls, step.results, strict=True):
                print(f"{call} → {each.text}")
        print(f"→ {result.answer} ({result.ended})")
