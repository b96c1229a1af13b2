"""Talking to a model in a terminal: a branch, its replies printed as they come, and an engine started on demand.

Used by talk.py and backends.py. Knows the language's backends, not how an engine is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from palmette.lang.backends.base import Backend, BackendBranch
from palmette.lang.backends.engine import EngineBackend
from palmette.lang.loop import run_on
from palmette.runtime.errors import BranchLost, EngineDied, PalmetteError
from palmette.runtime.messages.branches import BeginRole, Chunk, EndRole, GenerateStep, Part, Text
from palmette.runtime.messages.sampling import SamplingParams

STOP_SECONDS = 5.0
HELP = "/exit ends the chat, /reset forgets it, /help says this. Ctrl-C ends a reply and keeps what was said."


class EngineOnDemand(EngineBackend):
    """A backend whose engine is started by its first use, so that a program with a backend of its own starts none."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._started: Any = None
        self._lock = threading.Lock()

    @property
    def engine(self) -> Any:  # type: ignore[override]  # made at first use instead of given
        self.start()
        return self._started

    def start(self) -> None:
        with self._lock:
            if self._started is None:
                self._started = self._start()

    def stop(self) -> None:
        if self._started is not None:
            self._started.close()


class Conversation:
    """One branch, spoken to from a terminal's thread. A context manager; leaving it closes the branch."""

    def __init__(self, backend: Backend, write: Callable[[str], None] | None = None) -> None:
        self._backend = backend
        self._write = write or _print
        self._branch: BackendBranch | None = None
        self._pending: list[Part] = []
        self._answered = False  # whether anything of the reply came: then the branch holds the turn

    def say(self, role: str, text: str) -> None:
        """Append a turn; it is sent with the next reply."""
        self._pending += [BeginRole(role), Text(text), EndRole(role)]

    def ask(self, text: str, params: SamplingParams) -> bool:
        """A user's turn, and the reply printed as it comes. False where Ctrl-C ended it: what came is kept, and a turn
        without any reply is taken back, as is one that fails."""
        parts = [*self._pending, BeginRole("user"), Text(text), EndRole("user"), BeginRole("assistant")]
        complete = self._reply(parts, params)
        if self._answered:
            self._pending = [EndRole("assistant")]
        return complete

    def continue_(self, text: str, params: SamplingParams) -> bool:
        """The continuation of `text`, without roles."""
        return self._reply([*self._pending, Text(text)], params)

    def reset(self) -> None:
        """Forget everything."""
        branch, self._branch = self._branch, None
        self._pending.clear()
        if branch is not None:
            with contextlib.suppress(EngineDied):  # its server has gone, and the branch with it
                run_on(self._backend.loop, branch.close())

    def _reply(self, parts: list[Part], params: SamplingParams) -> bool:
        self._answered = False
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(self._stream(parts, params, ended), self._backend.loop)
        try:
            future.result()
        except KeyboardInterrupt:
            future.cancel()
            ended.wait(STOP_SECONDS)  # until then more of the reply may come
            return False
        except BranchLost:
            self._branch = None
            self._pending.clear()
            raise
        return True

    async def _stream(self, parts: list[Part], params: SamplingParams, ended: threading.Event) -> None:
        try:
            if self._branch is None:
                self._branch = await self._backend.open()
            results = self._branch.run([GenerateStep(parts=tuple(parts), params=params)])
            async with contextlib.aclosing(results):
                async for _, chunk in results:
                    assert isinstance(chunk, Chunk)
                    self._answered = True
                    self._write(chunk.text)
        finally:
            ended.set()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.reset()


def converse(conversation: Conversation, params: SamplingParams, system: str | None) -> None:
    """Turns from standard input until it ends or says /exit. A failed turn is reported, and the chat goes on."""
    if sys.stdin.isatty():
        import readline  # noqa: F401  # line editing and history for input()

        print(HELP)
    if system:
        conversation.say("system", system)
    while (line := _read()) is not None:
        match line.strip():
            case "":
                continue
            case "/exit" | "/quit":
                return
            case "/help":
                print(HELP)
            case "/reset":
                conversation.reset()
                if system:
                    conversation.say("system", system)
            case command if command.startswith("/"):
                print(f"{command.split()[0]} is no command here. {HELP}")
            case text:
                _turn(conversation, text, params)


def _turn(conversation: Conversation, text: str, params: SamplingParams) -> None:
    try:
        if not conversation.ask(text, params):
            print(" [stopped]", end="")
    except PalmetteError as error:
        print(f"[{error}]", end="")
    print()


def _read() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "")
    except EOFError:
        if sys.stdin.isatty():
            print()
        return None


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
