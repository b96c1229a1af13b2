"""The seam between the language and whatever runs it: a backend opens branches; a branch is a program's state.

Verbs run in order within a branch; the language's core is the only caller. A verb takes several steps, each with the
parts that were appended before it, so that nodes that need no Python in between travel in one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from palmette.runtime.messages.branches import ChoiceScores, Chunk, Part, Step
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.programs import CallResult, ProgramEvent
from palmette.runtime.messages.tool_chats import AskTurn, ToldTurn

Result = Chunk | ChoiceScores


class BackendBranch(Protocol):
    """One branch. After an engine restart a verb raises BranchLost; the language reopens from its own history."""

    def run(self, steps: Sequence[Step], *, last: bool = False) -> AsyncGenerator[tuple[int, Result], None]:
        """Do `steps` in order, in one message; what each gives comes with its number (runtime/messages/branches.py).

        An error leaves the branch as it was before its step. Closing the iterator aborts the step that runs.
        `last`: the branch is closed behind them.
        """
        ...

    async def fork(self, parts: Sequence[Part], count: int) -> Sequence[BackendBranch]:
        """Append `parts`, encode what is pending, and return `count` branches that start from here."""
        ...

    async def hint(self, hint: BranchHint) -> None:
        """Tell the cache what the program knows of this branch's future. Never changes a result."""
        ...

    async def close(self) -> None:
        """Release the branch; aborts a running verb. Idempotent."""
        ...

    def drop(self) -> bool:
        """Release the branch, on which nothing runs, from any thread; False where only `close` can."""
        ...


class ProgramRun(Protocol):
    """A running plan on a backend."""

    def events(self) -> AsyncGenerator[ProgramEvent, None]:
        """What it gives, to the end. Closing the iterator aborts it."""
        ...

    async def answer(self, result: CallResult) -> None:
        """The result of a Call that an event asked for."""
        ...


class ToolChat(Protocol):
    """A conversation with tools in the model's own format of calls. Each turn is asked with all messages before it."""

    async def ask(self, turn: AskTurn) -> ToldTurn:
        """The assistant's next turn. Cancelling the caller aborts it."""
        ...

    async def hint(self, hint: BranchHint) -> None:
        """Tell the cache what is known of the conversation's future. Never changes a result."""
        ...

    async def close(self) -> None: ...


class Chatting(Protocol):
    """A backend that leads such conversations; not every one does."""

    def open_tool_chat(self, *, namespace: str = "", state: str = "") -> ToolChat:
        """`state`: where the state that asks stands in its program's forks (lang/traces/trace.py: TracedCall)."""
        ...


class Backend(Protocol):
    name: str

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running event loop that every verb must be awaited on."""
        ...

    async def open(self, *, namespace: str = "") -> BackendBranch: ...

    async def flush_cache(self) -> int:
        """Drop cached pages that nothing uses; returns how many."""
        ...

    async def close(self) -> None: ...
