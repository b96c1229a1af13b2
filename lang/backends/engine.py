"""Programs on an engine in this process. The engine is given, never imported: whatever has a frontend and a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from palmette.lang.backends.base import BackendBranch, ProgramRun, ToolChat
from palmette.runtime.errors import EngineDied
from palmette.runtime.messages.programs import RunProgram


class FrontendLike(Protocol):
    """What this backend calls of runtime/frontend, on the engine's loop."""

    async def open_branch(self, namespace: str = "") -> BackendBranch: ...

    def run_program(self, request: RunProgram) -> ProgramRun: ...

    def open_chat(self, namespace: str = "") -> ToolChat: ...

    async def flush_cache(self) -> int: ...


class EngineLike(Protocol):
    """What this backend needs of an Engine."""

    @property
    def frontend(self) -> FrontendLike: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def close(self) -> None: ...


class EngineBackend:
    """Runs programs on `engine`. Closing the backend leaves the engine to its owner."""

    name = "engine"

    def __init__(self, engine: Any) -> None:
        self.engine: EngineLike = engine

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self.engine.loop.is_closed():
            raise EngineDied("The engine is closed.", hint="Start another one; see set_default_backend.")
        return self.engine.loop

    async def open(self, *, namespace: str = "") -> BackendBranch:
        return await self.engine.frontend.open_branch(namespace)

    async def run_program(self, request: RunProgram) -> ProgramRun:
        """A compiled program, beside the frontend."""
        return self.engine.frontend.run_program(request)

    def open_tool_chat(self, *, namespace: str = "", state: str = "") -> ToolChat:
        """A conversation with tools, in the model's own format of calls."""
        return self.engine.frontend.open_chat(namespace)

    async def flush_cache(self) -> int:
        return await self.engine.frontend.flush_cache()

    async def close(self) -> None:
        """Nothing to release: the engine belongs to who made it."""


class Runtime(EngineBackend):
    """An engine and its backend in one, as programs start it: `Runtime(model_path=…)`, later `.shutdown()`.

    The other options are those of EngineConfig. As a context manager it shuts down at the end of the block.
    """

    name = "runtime"

    def __init__(self, model_path: str | None = None, *, start: Callable[..., Any], **options: Any) -> None:
        """`start` makes the engine; the public `palmette.Runtime` has it filled in."""
        if model_path is not None:
            options["model"] = model_path
        super().__init__(start(**options))

    def shutdown(self) -> None:
        """Stop the engine. Programs that still run fail with EngineDied."""
        self.engine.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
