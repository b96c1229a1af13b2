"""A conversation with tools over chat completions: turns as JSON, and what the API answers. Used by the backends of
servers (http, openai), which post the bodies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palmette.runtime.errors import InternalError
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.tool_chats import AskTurn, Said, SaidCall, ToldTurn

Post = Callable[[AskTurn, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a turn, whose messages and tools are in the body, with the options that the API has for the rest."""


class PostedChat:
    """One conversation, each turn of which is a request of its own."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def ask(self, turn: AskTurn) -> ToldTurn:
        return told(await self._post(turn, body_of(turn)))

    async def hint(self, hint: BranchHint) -> None:
        """Chat completions have no word for it."""

    async def close(self) -> None:
        """Nothing lives on the server."""


def body_of(turn: AskTurn) -> dict[str, Any]:
    """What every such API calls it alike."""
    tools = [
        {"type": "function", "function": {"name": tool.name, "description": tool.description,
                                          "parameters": tool.parameters}}
        for tool in turn.tools
    ]  # fmt: skip
    return {
        "messages": [_message(said) for said in turn.messages],
        "tools": tools,
        "tool_choice": turn.choice,
        "parallel_tool_calls": turn.parallel,
    }


def told(reply: dict[str, Any]) -> ToldTurn:
    """What the API answered. Raises InternalError for what is no answer."""
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        calls = tuple(
            SaidCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        )
        return ToldTurn(
            text=message.get("content") or "",
            reasoning=message.get("reasoning_content") or "",
            calls=calls,
            reason="length" if choice.get("finish_reason") == "length" else "stop",
            usage=usage_of(reply.get("usage") or {}),
        )
    except (KeyError, IndexError, TypeError) as error:
        raise InternalError(f"The chat was answered with {reply!r:.200}.") from error


def usage_of(given: dict[str, Any]) -> Usage:
    """Token counts as the API names them."""
    details = given.get("prompt_tokens_details") or {}
    prompt, cached = int(given.get("prompt_tokens") or 0), int(details.get("cached_tokens") or 0)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=int(given.get("completion_tokens") or 0),
        cached_tokens=cached,
        reusable_tokens=cached,
        computed_tokens=prompt - cached,
    )


def _message(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": said.role, "content": said.content}
    if said.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in said.calls
        ]
    if said.answers is not None:
        message["tool_call_id"] = said.answers
    return message
