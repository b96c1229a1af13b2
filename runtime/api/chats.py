"""What the chat surfaces share: OpenAI's messages and tools read into the frontend's terms, turns opened together.

Used by openai_chat.py and the surfaces that speak other dialects of the same thing. Knows no answers.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from palmette.runtime.api.access import Caller
from palmette.runtime.api.bodies import Body
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.api.schemas_chat import (
    AllowedTools,
    AllowedToolsChoice,
    CalledFunction,
    ChatMessage,
    ChatTool,
    ChatToolCall,
    FunctionTool,
    NamedFunction,
    NamedToolChoice,
    TextPart,
    ToolMessage,
)
from palmette.runtime.api.surface import Surface, check_outputs
from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.frontend import ChatGeneration, ChatTurn, ToolCall
from palmette.runtime.frontend import ChatMessage as Message
from palmette.runtime.frontend.chats import PreparedTurn
from palmette.runtime.messages.sampling import SamplingParams, output_seed
from palmette.runtime.parsers.protocol import NamedTool, Tool, ToolChoice

ROLES = ("system", "developer", "user", "assistant", "tool")
PARTS_OF_TEXT = ("text", "refusal")
READING = 20  # reading a message takes as long as writing so many values of an answer (surface.beside)


def open_chats(
    surface: Surface,
    prepared: PreparedTurn,
    *,
    request_id: str,
    count: int = 1,
    caller: Caller,
    fields: SchedulingFields,
) -> list[ChatGeneration]:
    """`count` outputs of one turn: all of them or, where one is refused, none. With a seed, output i has seed + i."""
    check_outputs(1, count)
    scheduling = fields.scheduling(caller)
    seed = prepared.params.seed
    opened: list[ChatGeneration] = []
    try:
        for choice in range(count):
            generation = surface.frontend.chats.submit(
                prepared,
                seed=output_seed(seed, choice),
                request_id=request_id if count == 1 else f"{request_id}-{choice}",
                scheduling=scheduling,
            )
            opened.append(generation)
    except BaseException:
        for generation in opened:
            generation.close()
        raise
    return opened


async def chat_tokens(surface: Surface, body: Body, given: Sequence[dict[str, Any]], namespace: str) -> list[int]:
    """Token ids of the messages `given` in `body`, up to where the assistant's turn begins."""
    messages = await surface.beside(READING * len(given), lambda: messages_of(body, given))
    turn = ChatTurn(messages=messages)
    return (await surface.frontend.chats.prepare(turn, SamplingParams(), namespace=namespace)).tokens


# --- messages ---


def messages_of(body: Body, given: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """The `messages` of `body`. Raises InvalidRequest or Unsupported, naming the path."""
    if not given:
        raise InvalidRequest("'messages' is empty.", hint="Send at least one.", param="messages")
    return tuple(_message(body, message, f"messages.{index}") for index, message in enumerate(given))


def _message(body: Body, given: dict[str, Any], path: str) -> Message:
    is_result = _object(given, path).get("role") == "tool"
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
    if not isinstance(given, list):
        raise InvalidRequest(f"{path}: {reprlib.repr(given)} is neither a text nor a list of parts.", param=path)
    return "".join(_part_text(body, part, f"{path}.{index}") for index, part in enumerate(given))


def _part_text(body: Body, part: Any, path: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind is None:
        raise InvalidRequest(f"{path}: {reprlib.repr(part)} is not a content part.", param=path)
    if kind not in PARTS_OF_TEXT:
        raise Unsupported(
            f"{path}: content of type {reprlib.repr(kind)} is not supported; the model reads text only.",
            param=f"{path}.type",
        )
    read = body.nested(part, TextPart, path)
    return read.text or read.refusal


def _call(body: Body, given: Any, path: str) -> ToolCall:
    call = body.nested(_object(given, path), ChatToolCall, path)
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


# --- tools ---


class Choice(NamedTuple):
    """`allowed`: the names that may be called, where not all of the tools may."""

    choice: ToolChoice
    allowed: frozenset[str] | None = None


def tools_of(body: Body, given: Sequence[dict[str, Any]]) -> tuple[Tool, ...]:
    """The `tools` of `body`. Raises InvalidRequest or Unsupported, naming the path."""
    return tuple(_tool(body, tool, f"tools.{index}") for index, tool in enumerate(given))


def _tool(body: Body, given: dict[str, Any], path: str) -> Tool:
    _check_kind(given, path)
    function = body.nested(body.nested(given, ChatTool, path).function, FunctionTool, f"{path}.function")
    return Tool(
        name=function.name,
        description=function.description,
        parameters=function.parameters,
        strict=function.strict,
    )


def choice_of(body: Body, given: Any) -> Choice:
    """The `tool_choice` of `body`. Raises InvalidRequest or Unsupported."""
    if given in ("none", "auto", "required"):
        return Choice(given)
    path = "tool_choice"
    if not isinstance(given, dict):
        raise InvalidRequest(
            f"tool_choice={reprlib.repr(given)} is not 'none', 'auto', 'required' or an object that names a tool.",
            param=path,
        )
    if given.get("type") != "allowed_tools":
        return Choice(NamedTool(_name(body, given, path)))
    choice = body.nested(given, AllowedToolsChoice, path)
    path = f"{path}.allowed_tools"
    allowed = body.nested(choice.allowed_tools, AllowedTools, path)
    names = [_name(body, tool, f"{path}.tools.{index}") for index, tool in enumerate(allowed.tools)]
    return Choice(allowed.mode, frozenset(names))


def _name(body: Body, given: Any, path: str) -> str:
    _check_kind(given, path)
    named = body.nested(given, NamedToolChoice, path)
    return body.nested(named.function, NamedFunction, f"{path}.function").name


def _check_kind(given: Any, path: str) -> None:
    kind = _object(given, path).get("type")
    if isinstance(kind, str) and kind != "function":
        raise Unsupported(
            f"{path}: a tool of type {reprlib.repr(kind)} is not supported.",
            hint="Tools are functions here.",
            param=f"{path}.type",
        )


def _object(given: Any, path: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{path}: {reprlib.repr(given)} is no object.", param=path)
    return given
