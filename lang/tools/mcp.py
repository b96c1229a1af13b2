"""Tools of MCP servers: a program is started, asked for its tools, and called over its standard input and output.

The protocol is the official `mcp` package's (an extra), in its versions 1 and 2. A session lives in a task of its own
on the language's loop, whichever loop or thread its tools are called from.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from palmette.lang.loop import language_loop, run_on
from palmette.lang.sampling import check_seconds
from palmette.lang.tools.tool import TIMEOUT, Tool
from palmette.runtime.errors import InvalidRequest, PalmetteError

START_SECONDS = 30.0


class ToolServerFailed(PalmetteError):
    """An MCP server that can't be started, or doesn't speak the protocol."""


class McpServer:
    """An MCP server that runs as `command args`, from the beginning of a `with` block (or `async with`) to its end.

        with McpServer("uvx", ["mcp-server-time"]) as tools:
            agent(tools).run("What time is it in Oslo?")

    `timeout` in seconds and `ask` are each tool's (lang/tools/tool.py); `only` names the tools that are wanted.
    Raises InvalidRequest where the package isn't installed, ToolServerFailed where it doesn't start.
    """

    def __init__(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        timeout: float = TIMEOUT,
        ask: bool = False,
        only: Sequence[str] | None = None,
    ) -> None:
        if isinstance(args, str):
            raise InvalidRequest(f"args={args!r} is not a list of strings.", param="args")
        check_seconds("timeout", timeout)
        self._command, self._args = command, list(args)
        self._env, self._cwd = dict(env) if env is not None else None, cwd
        self._timeout, self._ask, self._only = timeout, ask, only
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        self._session: Any = None

    def __enter__(self) -> list[Tool]:
        return run_on(language_loop(), self._start())

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        run_on(language_loop(), self._end())

    async def __aenter__(self) -> list[Tool]:
        tools: list[Tool] = await _on_language_loop(self._start())
        return tools

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        await _on_language_loop(self._end())

    async def _start(self) -> list[Tool]:
        package, stdio = _package()
        if self._task is not None:
            raise InvalidRequest("This MCP server runs already.", hint="Make another McpServer.")
        ready: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._serve(package, stdio, ready, self._stop))
        try:
            async with asyncio.timeout(START_SECONDS):
                described = await ready
        except Exception as error:
            await self._end()
            raise ToolServerFailed(
                f"The MCP server {' '.join([self._command, *self._args])!r} did not start:"
                f" {type(error).__name__}: {error}",
                hint="Run the command by itself to see what it says.",
            ) from error
        try:
            return self._tools(described)
        except InvalidRequest:
            await self._end()
            raise

    async def _serve(self, package: Any, stdio: Any, ready: asyncio.Future[list[Any]], stop: asyncio.Event) -> None:
        """The session, from its start to `stop`, in one task as its cancel scopes want it."""
        parameters = package.StdioServerParameters(command=self._command, args=self._args, env=self._env, cwd=self._cwd)
        try:
            async with stdio.stdio_client(parameters) as (read, write), package.ClientSession(read, write) as session:
                await session.initialize()
                listed = await session.list_tools()
                self._session = session
                ready.set_result(list(listed.tools))
                await stop.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
        finally:
            self._session = None

    async def _end(self) -> None:
        if self._task is None or self._stop is None:
            return
        task, self._task = self._task, None
        self._stop.set()
        _, running = await asyncio.wait([task], timeout=START_SECONDS)
        for each in running:
            each.cancel()

    def _tools(self, described: Sequence[Any]) -> list[Tool]:
        names = [each.name for each in described]
        for name in self._only or ():
            if name not in names:
                raise InvalidRequest(
                    f"The MCP server has no tool {name!r}.", hint=f"It has {', '.join(names)}.", param="only"
                )
        return [self._tool(each) for each in described if self._only is None or each.name in self._only]

    def _tool(self, described: Any) -> Tool:
        async def call(**arguments: Any) -> Any:
            return await _on_language_loop(self._called(described.name, arguments))

        schema = getattr(described, "input_schema", None) or getattr(described, "inputSchema", None) or {}
        return Tool.of_schema(
            call,
            name=described.name,
            description=described.description or "",
            parameters=schema,
            timeout=self._timeout,
            ask=self._ask,
        )

    async def _called(self, name: str, arguments: dict[str, Any]) -> Any:
        """What the tool returned: its text, or its structured content where it has no text. Raises what it says went
        wrong, for the model to be told."""
        if self._session is None:
            raise ToolServerFailed("its MCP server has ended")
        result = await self._session.call_tool(name, arguments)
        texts = [each.text for each in result.content if getattr(each, "text", None) is not None]
        text = "\n".join(texts)
        if getattr(result, "is_error", None) or getattr(result, "isError", None):
            raise ToolServerFailed(text or "the tool failed")
        structured = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
        return text if texts or structured is None else structured


async def _on_language_loop(work: Any) -> Any:
    loop = language_loop()
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def _package() -> tuple[Any, Any]:
    try:
        return importlib.import_module("mcp"), importlib.import_module("mcp.client.stdio")
    except ImportError as error:
        raise InvalidRequest(
            f"MCP servers need the package mcp ({error}).", hint="Install it: pip install 'palmette[mcp]'."
        ) from error
