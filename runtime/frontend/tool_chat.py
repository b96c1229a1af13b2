"""A conversation with tools, as a program's agent leads one: each turn asked whole, and what it computed kept cached
while a tool runs. Meets `lang`'s ToolChat without knowing it.

Over chats.py, which renders tools with the model's template and reads its calls. Opened by Frontend.open_chat.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from palmette.runtime.frontend.chat_generation import collect_chats
from palmette.runtime.frontend.chat_turn import ChatMessage, ChatTurn, ToolCall
from palmette.runtime.frontend.chats import Chats
from palmette.runtime.messages.hints import BranchHint, Hint
from palmette.runtime.messages.requests import Scheduling
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tool_chats import AskTurn, Said, SaidCall, ToldTurn
from palmette.runtime.parsers.protocol import Tool


class ToolChat:
    """One conversation. `tell_cache` takes hints about what it computed."""

    def __init__(
        self,
        chats: Chats,
        tell_cache: Callable[[Hint], None],
        *,
        namespace: str = "",
        scheduling: Scheduling = Scheduling(),
    ) -> None:
        self._chats = chats
        self._tell_cache = tell_cache
        self._namespace = namespace
        self._scheduling = scheduling
        self._said: ChatTurn | None = None  # the conversation up to the model's last message

    async def ask(self, turn: AskTurn) -> ToldTurn:
        """The assistant's next turn. Cancelling the caller aborts it. Raises what Chats.prepare raises."""
        wanted = _turn(turn)
        prepared = await self._chats.prepare(wanted, turn.params, namespace=self._namespace)
        [output] = await collect_chats([self._chats.submit(prepared, scheduling=self._wanted(turn), watched=False)])
        calls = tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in output.calls)
        answer = ChatMessage(role="assistant", content=output.content, tool_calls=calls)
        self._said = msgspec.structs.replace(
            wanted, messages=(*wanted.messages, answer), tool_choice="auto", add_generation_prompt=False
        )
        finish = output.finish
        return ToldTurn(
            text=output.text,
            reasoning=output.reasoning,
            calls=tuple(SaidCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls),
            reason="stop" if finish.reason == "tool_calls" else finish.reason,
            usage=finish.usage,
        )

    def _wanted(self, turn: AskTurn) -> Scheduling:
        """How soon the turn is wanted."""
        own = {"priority": turn.priority, "deadline": turn.timeout}
        return msgspec.structs.replace(
            self._scheduling, **{name: each for name, each in own.items() if each is not None}
        )

    async def hint(self, hint: BranchHint) -> None:
        """Tell the cache what is known of the conversation's future: of what its next turn begins with."""
        if self._said is not None:
            said = await self._chats.prepare(self._said, SamplingParams(max_tokens=1), namespace=self._namespace)
            self._tell_cache(hint.of(said.prompt.tokens, self._namespace))

    async def close(self) -> None:
        """Nothing is held: what it computed is the cache's."""


def _turn(asked: AskTurn) -> ChatTurn:
    """Every call is held to its tool's schema, and closed within max_tokens where that can be done."""
    return ChatTurn(
        messages=tuple(map(_message, asked.messages)),
        tools=tuple(
            Tool(name=tool.name, description=tool.description, parameters=tool.parameters, strict=True)
            for tool in asked.tools
        ),
        tool_choice=asked.choice,
        parallel_tool_calls=asked.parallel,
        complete=True,
    )


def _message(said: Said) -> ChatMessage:
    calls = tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in said.calls)
    content = None if calls and not said.content else said.content
    return ChatMessage(role=said.role, content=content, tool_calls=calls, tool_call_id=said.answers)
