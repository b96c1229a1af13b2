"""A request of /v1/messages read into the frontend's terms (runtime/frontend/chat_turn.py): its tools, the choice among
them, and whether the model thinks; the conversation is read in conversation.py. Used by routes.py; knows no
answers.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from palmette.runtime.api.chat_tools import Choice, own_tools
from palmette.runtime.api.messages.conversation import messages_of
from palmette.runtime.api.messages.schemas import (
    AnyToolChoice,
    AutoToolChoice,
    NamedToolUse,
    NoToolChoice,
    ToolParam,
    TurnFields,
)
from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.frontend import ChatTurn
from palmette.runtime.frontend.chat_prompt import ReasoningControl
from palmette.runtime.parsers.protocol import NamedTool, Tool
from palmette.runtime.parsers.registry import NONE


class ModelReasoning(NamedTuple):
    """What the served model has: the format of its reasoning, and what its template lets callers say of it."""

    format: str
    control: ReasoningControl


def turn_of(body: TurnFields, reasoning: ModelReasoning) -> ChatTurn:
    """Raises InvalidRequest or Unsupported, naming the path."""
    if body.thread is not None:
        raise Unsupported(
            "'thread' is not supported: a conversation isn't kept between requests.",
            hint="Send all of its messages.",
            param="thread",
        )
    messages, continued = messages_of(body)
    tools = own_tools(body, body.tools, lambda given, path: _tool(body, given, path), kind="custom")
    choice = _choice(body, body.tool_choice, tools) if body.tool_choice is not None else Choice("auto")
    if continued:
        _check_continued(body, choice)
    return ChatTurn(
        messages=messages,
        tools=tools,
        tool_choice=choice.choice,
        parallel_tool_calls=choice.parallel,
        reasoning_effort=_effort(body, reasoning.control),
        variables={**_switched(body, reasoning), **body.chat_template_kwargs},
        continue_final_message=continued,
        jump=getattr(body, "jump", "bytes"),
        complete=getattr(body, "complete", None) is True,
    )


# --- tools ---


def _tool(body: TurnFields, given: dict[str, Any], path: str) -> Tool:
    tool = body.nested(given, ToolParam, path)
    if tool.allowed_callers != ["direct"]:
        body.refuse(
            Unsupported(
                f"{path}.allowed_callers: the model is the only caller here.",
                hint='Leave it out, or give ["direct"].',
                param=f"{path}.allowed_callers",
            )
        )
    schema = tool.input_schema
    if schema.get("type", "object") != "object":
        raise InvalidRequest(
            f"{path}.input_schema has the type {reprlib.repr(schema['type'])}; a tool takes an object.",
            hint='Give {"type": "object", "properties": …}.',
            param=f"{path}.input_schema.type",
        )
    if tool.input_examples:
        schema = {**schema, "examples": tool.input_examples}
    return Tool(name=tool.name, description=tool.description, parameters=schema, strict=tool.strict)


def _choice(body: TurnFields, given: dict[str, Any], tools: Sequence[Tool]) -> Choice:
    path = "tool_choice"
    match given.get("type"):
        case "none":
            body.nested(given, NoToolChoice, path)
            return Choice("none")
        case "auto":
            auto = body.nested(given, AutoToolChoice, path)
            return Choice("auto", parallel=not auto.disable_parallel_tool_use)
        case "any":
            any_one = body.nested(given, AnyToolChoice, path)
            choice = Choice("required", parallel=not any_one.disable_parallel_tool_use)
        case "tool":
            one = body.nested(given, NamedToolUse, path)
            choice = Choice(NamedTool(one.name), parallel=not one.disable_parallel_tool_use)
        case kind:
            raise InvalidRequest(
                f"{path}.type: {reprlib.repr(kind)} is not 'auto', 'any', 'tool' or 'none'.", param=f"{path}.type"
            )
    if not tools:
        raise InvalidRequest(f"{path} asks for a call, but no tools are offered.", hint="Offer a tool.", param=path)
    return choice


def _check_continued(body: TurnFields, choice: Choice) -> None:
    reason = None
    if choice.choice not in ("auto", "none"):
        reason = "tool_choice asks for a call"
    elif body.format is not None:
        reason = "output_config.format is of a whole answer"
    if reason is not None:
        raise InvalidRequest(
            f"The last message is the assistant's, which the output goes on with, and {reason}.",
            hint="End the messages with the user's, or leave out the other.",
            param="messages",
        )


# --- thinking ---


def _switched(body: TurnFields, reasoning: ModelReasoning) -> dict[str, Any]:
    """The template's variables by which the model thinks, or doesn't, as `thinking` asks."""
    thinking = body.thinking_config()
    if thinking is None or thinking.type == "adaptive":
        return {}
    wanted, thinks, switch = thinking.type, reasoning.format != NONE, reasoning.control.switch
    reason = None
    if wanted == "between_tools":
        reason = "when it thinks is the model's own affair"
    elif wanted == "enabled" and not thinks:
        reason = "the model doesn't think before it answers"
    elif wanted == "disabled" and thinks and switch is None:
        reason = "the model can't be kept from thinking"
    if reason is not None:
        hint = "Leave it out."
        body.refuse(Unsupported(f"thinking.type={wanted!r}: {reason}.", hint=hint, param="thinking.type"))
        return {}
    return {switch: wanted == "enabled"} if thinks and switch is not None else {}


def _effort(body: TurnFields, control: ReasoningControl) -> str | None:
    effort = body.output_config.effort if body.output_config is not None else None
    if effort is not None and not control.levels:
        body.refuse(
            Unsupported(
                f"output_config.effort={effort!r}: the model's template has no levels of reasoning.",
                hint="Leave it out.",
                param="output_config.effort",
            )
        )
        return None
    return effort
