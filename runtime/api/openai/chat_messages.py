"""Messages and tools of chat completions, read into the frontend's terms (runtime/frontend/chat_turn.py).

Used by chat.py, and by the native surfaces that take messages. Knows no answers. Raises InvalidRequest or
Unsupported, naming the path.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from typing import Any

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.chat_tools import AllowedNames, Choice, as_object, openai_choice, own, own_tools
from palmette.runtime.api.chats import READING, pieces
from palmette.runtime.api.content import parts_of
from palmette.runtime.api.openai.chat_schemas import (
    AllowedTools,
    AllowedToolsChoice,
    CalledFunction,
    ChatBody,
    ChatMessage,
    ChatTool,
    ChatToolCall,
    FunctionTool,
    NamedFunction,
    NamedToolChoice,
    TextPart,
    ToolMessage,
)
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import ChatMessage as Message
from palmette.runtime.frontend import ChatTurn, ToolCall
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.parsers.protocol import Tool

ROLES = ("system", "developer", "user", "assistant", "tool")
PARTS_OF_TEXT = ("text", "refusal")


async def chat_tokens(surface: Surface, body: Body, given: Sequence[dict[str, Any]], namespace: str) -> list[int]:
    """Token ids of the messages `given` in `body`, up to where the assistant's turn begins."""
    messages = await surface.beside(READING * pieces(given), lambda: messages_of(body, given))
    turn = ChatTurn(messages=messages)
    return (await surface.frontend.chats.prepare(turn, SamplingParams(), namespace=namespace)).tokens


def messages_of(body: Body, given: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """The `messages` of `body`."""
    if not given:
        raise InvalidRequest("'messages' is empty.", hint="Send at least one.", param="messages")
    return tuple(_message(body, message, f"messages.{index}") for index, message in enumerate(given))


def _message(body: Body, given: dict[str, Any], path: str) -> Message:
    is_result = as_object(given, path).get("role") == "tool"
    message = body.nested(given, ToolMessage if is_result else ChatMessage, path)
    if message.role not in ROLES:
        raise InvalidRequest(
            f"{path}.role: {reprlib.repr(message.role)} is no role; it must be one of {', '.join(ROLES)}.",
            hint="A function's result has the role 'tool'." if message.role == "function" else "",
            param=f"{path}.role",
        )
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest(
            f"{path}: a message of role {message.role!r} has tool_calls; the assistant's can have them.",
            param=f"{path}.tool_calls",
        )
    content = content_text(body, message.content, f"{path}.content")
    calls = [_call(body, call, f"{path}.tool_calls.{index}") for index, call in enumerate(message.tool_calls)]
    return Message(
        role=message.role,
        content=content or message.refusal or (None if calls else ""),
        reasoning=message.reasoning_content if message.reasoning_content is not None else message.reasoning,
        tool_calls=tuple(calls),
        tool_call_id=message.tool_call_id,
        name=message.name if isinstance(message, ToolMessage) else None,
    )


def content_text(body: Body, given: Any, path: str) -> str:
    """A message's content: a text, or parts that hold text."""
    if isinstance(given, str):
        return given
    return "".join(part.text or part.refusal for part in parts_of(body, given, path, TextPart, PARTS_OF_TEXT))


def _call(body: Body, given: Any, path: str) -> ToolCall:
    call = body.nested(as_object(given, path), ChatToolCall, path)
    function = body.nested(call.function, CalledFunction, f"{path}.function")
    arguments = function.arguments
    if not isinstance(arguments, str):
        if not isinstance(arguments, dict):
            raise InvalidRequest(
                f"{path}.function.arguments: {reprlib.repr(arguments)} is neither JSON text nor an object.",
                param=f"{path}.function.arguments",
            )
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=call.id, name=function.name, arguments=arguments)


def tools_of(body: ChatBody) -> tuple[Tool, ...]:
    def read(given: dict[str, Any], path: str) -> Tool:
        function = body.nested(body.nested(given, ChatTool, path).function, FunctionTool, f"{path}.function")
        return Tool(
            name=function.name,
            description=function.description,
            parameters=function.parameters,
            strict=function.strict,
        )

    return own_tools(body, body.tools, read)


def choice_of(body: ChatBody) -> Choice:
    def name_of(given: dict[str, Any], path: str) -> str:
        named = body.nested(given, NamedToolChoice, path)
        return body.nested(named.function, NamedFunction, f"{path}.function").name

    def allowed_of(given: dict[str, Any], path: str) -> AllowedNames:
        choice = body.nested(given, AllowedToolsChoice, path)
        path = f"{path}.allowed_tools"
        allowed = body.nested(choice.allowed_tools, AllowedTools, path)
        places = [(tool, f"{path}.tools.{index}") for index, tool in enumerate(allowed.tools)]
        return AllowedNames(allowed.mode, frozenset(name_of(own(tool, at), at) for tool, at in places))

    return openai_choice(body.tool_choice, name_of, allowed_of)
