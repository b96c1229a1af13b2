"""A state's conversation with tools on its backend, beside what its branch holds: opened at the first turn, asked once
more where the server was lost. Lives on the backend's loop; the interpreter is its only caller.
"""

from __future__ import annotations

import contextlib

from palmette.lang.backends.base import Backend, Chatting, ToolChat
from palmette.runtime.errors import EngineDied, Unsupported
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.tool_chats import AskTurn, ToldTurn


def chatting(backend: Backend) -> Chatting:
    """The backend as one that leads conversations with tools. Raises Unsupported where it doesn't."""
    if not callable(getattr(backend, "open_tool_chat", None)):
        raise Unsupported(
            f"mode='native': the backend {backend.name!r} has no chat with tools.",
            hint="Run on an Engine, a Runtime, a RuntimeEndpoint or OpenAI, or use mode='calls'.",
            param="mode",
        )
    return backend  # type: ignore[return-value]


class Conversation:
    """One state's."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._namespace = namespace
        self._chat: ToolChat | None = None

    @property
    def is_open(self) -> bool:
        return self._chat is not None

    async def ask(self, turn: AskTurn, state: str) -> ToldTurn:
        """The assistant's next turn. `state`: where the state stands in its program's forks."""
        for last_try in (False, True):
            if self._chat is None:
                self._chat = chatting(self._backend).open_tool_chat(namespace=self._namespace, state=state)
            try:
                return await self._chat.ask(turn)
            except EngineDied:
                if last_try:
                    raise
                self._chat = None
        raise AssertionError("the second try returns or raises")

    async def hint(self, hint: BranchHint) -> None:
        """Tell the cache; a conversation that hasn't begun, or was lost, has nothing cached."""
        if self._chat is not None:
            with contextlib.suppress(EngineDied):
                await self._chat.hint(hint)

    async def close(self) -> None:
        chat, self._chat = self._chat, None
        if chat is not None:
            await chat.close()
