"""Items of a response: what a client sends made whole (`read_items`), and made into the messages of a chat turn
(`messages_of`), which is the way of kept items too; tools, and the choice among them.

Used by routes.py. Knows no answers and no store: references to kept items are followed by what it is given.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.chat_tools import AllowedNames, Choice, openai_choice, own, own_tools
from palmette.runtime.api.content import parts_of
from palmette.runtime.api.responses.schemas import (
    AllowedChoice,
    FunctionCallItem,
    FunctionCallOutputItem,
    FunctionChoice,
    InputFields,
    ItemPart,
    ItemReference,
    MessageItem,
    ReasoningItem,
    ReasoningPart,
    ResponseTool,
)
from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.frontend import ChatMessage, ToolCall
from palmette.runtime.parsers.protocol import Tool

Item = dict[str, Any]
Kind = Literal["msg", "fc", "fco", "rs"]
PARAGRAPH = "\n\n"  # between the parts of a summary
_OURS = re.compile(r"(?:msg|fc|fco|rs)_([0-9a-f]{32})(i?)[0-9a-f]{4,}\Z")
PARTS_OF_TEXT = ("input_text", "output_text", "text", "refusal")
_SYSTEM = ("system", "developer")


def output_id(kind: Kind, response: str, index: int) -> str:
    """The id of an output item of the response whose id ends with `response`: by it items of one output are known."""
    return f"{kind}_{response}{index:04x}"


def input_id(kind: Kind, response: str, index: int) -> str:
    return f"{kind}_{response}i{index:04x}"


def response_of(item_id: str) -> str | None:
    """The response that has the item of this id, in its input or output; None for an id that isn't ours."""
    match = _OURS.match(item_id)
    return f"resp_{match.group(1)}" if match else None


# --- what clients send ---


def references(body: InputFields) -> list[str]:
    """The ids of the items that the input of `body` refers to."""
    given = body.input if isinstance(body.input, list) else []
    items = [item for item in given if isinstance(item, dict) and "role" not in item]
    ids = [item.get("id") for item in items if item.get("type") in (None, "item_reference")]
    return [each for each in ids if isinstance(each, str)]


def read_items(body: InputFields, response: str, kept: Callable[[str], Item | None]) -> list[Item]:
    """The input of `body` as items that have everything that such an item has. `response`: the end of its id; `kept`
    gives the item of that id, where it is known. Raises InvalidRequest or Unsupported, naming the path."""
    given = body.input
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not given:
        raise InvalidRequest("'input' is missing or empty.", hint="Send a text, or at least one item.", param="input")
    return [_read(body, item, f"input.{index}", response, index, kept) for index, item in enumerate(given)]


def _read(body: Body, given: Any, path: str, response: str, index: int, kept: Callable[[str], Item | None]) -> Item:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{path}: {reprlib.repr(given)} is no item.", param=path)
    kind = given.get("type")
    if kind is None:
        kind = "message" if "role" in given else "item_reference"
    match kind:
        case "message":
            message = body.nested(given, MessageItem, path)
            return _message(body, message, path, message.id or input_id("msg", response, index))
        case "function_call":
            call = body.nested(given, FunctionCallItem, path)
            return {
                "id": call.id or input_id("fc", response, index),
                "type": "function_call",
                "status": call.status or "completed",
                "call_id": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
            }
        case "function_call_output":
            result = body.nested(given, FunctionCallOutputItem, path)
            output = result.output
            if not isinstance(output, str):
                parts = _parts(body, output, f"{path}.output")
                output = [{"type": "input_text", "text": part.text or part.refusal} for part in parts]
            return {
                "id": result.id or input_id("fco", response, index),
                "type": "function_call_output",
                "status": result.status or "completed",
                "call_id": result.call_id,
                "output": output,
            }
        case "reasoning":
            thought = body.nested(given, ReasoningItem, path)
            return {
                "id": thought.id or input_id("rs", response, index),
                "type": "reasoning",
                "summary": [_thought(body, part, f"{path}.summary.{at}") for at, part in enumerate(thought.summary)],
                "content": [_thought(body, part, f"{path}.content.{at}") for at, part in enumerate(thought.content)],
            }
        case "item_reference":
            return _referred(body, given, path, kept)
    raise Unsupported(
        f"{path}: an item of type {reprlib.repr(kind)} is not supported.",
        hint="Items are messages, function calls, what they returned, reasoning, and references to such.",
        param=f"{path}.type",
    )


def _message(body: Body, message: MessageItem, path: str, item_id: str) -> Item:
    content = message.content
    parts = [ItemPart(type="text", text=content)] if isinstance(content, str) else None
    if parts is None:
        parts = _parts(body, content, f"{path}.content")
    if message.role == "assistant":
        shown = [_said(part) for part in parts]
    else:
        shown = [{"type": "input_text", "text": part.text or part.refusal} for part in parts]
    return {
        "id": item_id,
        "type": "message",
        "role": message.role,
        "status": message.status or "completed",
        "content": shown,
    }


def _said(part: ItemPart) -> Item:
    if part.type == "refusal":
        return {"type": "refusal", "refusal": part.refusal}
    return {"type": "output_text", "text": part.text, "annotations": []}


def _parts(body: Body, given: Any, path: str) -> list[ItemPart]:
    return parts_of(body, given, path, ItemPart, PARTS_OF_TEXT)


def _thought(body: Body, given: Any, path: str) -> Item:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{path}: {reprlib.repr(given)} is no part.", param=path)
    part = body.nested(given, ReasoningPart, path)
    return {"type": part.type, "text": part.text}


def _referred(body: Body, given: Item, path: str, kept: Callable[[str], Item | None]) -> Item:
    wanted = body.nested(given, ItemReference, path).id
    item = kept(wanted)
    if item is None:
        raise InvalidRequest(
            f"{path}: item {reprlib.repr(wanted)} is not known here, or referred to twice.",
            hint="Send the item itself, once.",
            param=f"{path}.id",
        )
    return item


# --- messages ---


class _Said:
    """The assistant's message so far: what it thought, said and called, from items that belong together."""

    def __init__(self, first: Item) -> None:
        self.origin = _origin(first)
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []

    def holds(self, item: Item) -> bool:
        """Whether `item` is of the same output. Items of ours say it by their ids; others by their order."""
        origin = _origin(item)
        if self.origin is not None and origin is not None:
            return self.origin == origin
        if item["type"] == "message":
            return not self.texts or bool(self.calls)
        return item["type"] == "function_call" or not (self.texts or self.calls)

    def add(self, item: Item) -> None:
        match item["type"]:
            case "message":
                self.texts.append("".join(_text_of(part) for part in item["content"]))
            case "function_call":
                self.calls.append(ToolCall(id=item["call_id"], name=item["name"], arguments=item["arguments"]))
            case _:
                said = [part["text"] for part in item.get("content") or ()]
                self.thoughts += said or [PARAGRAPH.join(part["text"] for part in item["summary"])]

    def message(self) -> ChatMessage:
        text = "".join(self.texts)
        return ChatMessage(
            role="assistant",
            content=text or (None if self.calls else ""),
            reasoning="".join(self.thoughts) or None,
            tool_calls=tuple(self.calls),
        )


def messages_of(items: Iterable[Item], instructions: str | None = None) -> tuple[ChatMessage, ...]:
    """Whole items as a conversation. Raises InvalidRequest for what answers a call that nobody made."""
    messages: list[ChatMessage] = []
    said: _Said | None = None
    called: set[str] = set()
    for item in items:
        if _is_said(item):
            if said is not None and not said.holds(item):
                messages.append(said.message())
                said = None
            said = said or _Said(item)
            said.add(item)
            if item["type"] == "function_call":
                called.add(item["call_id"])
            continue
        if said is not None:
            messages.append(said.message())
            said = None
        messages.append(_given(item, called))
    if said is not None:
        messages.append(said.message())
    return _instructed(messages, instructions)


def _given(item: Item, called: set[str]) -> ChatMessage:
    """A message that isn't the assistant's."""
    if item["type"] == "message":
        return ChatMessage(role=item["role"], content="".join(_text_of(part) for part in item["content"]))
    if item["call_id"] not in called:
        raise InvalidRequest(
            f"A function_call_output answers the call {reprlib.repr(item['call_id'])}, which nobody made before it.",
            hint="Send the function_call before it, or the previous_response_id of the response that made it.",
            param="input",
        )
    output = item["output"]
    text = output if isinstance(output, str) else "".join(part["text"] for part in output)
    return ChatMessage(role="tool", content=text, tool_call_id=item["call_id"])


def _instructed(messages: Sequence[ChatMessage], instructions: str | None) -> tuple[ChatMessage, ...]:
    """Behind the instructions. A system message that follows them is one with them: many templates take one only."""
    if not instructions:
        return tuple(messages)
    rest = list(messages)
    if rest and rest[0].role in _SYSTEM:
        instructions += PARAGRAPH + (rest.pop(0).content or "")
    return (ChatMessage(role="system", content=instructions), *rest)


def _is_said(item: Item) -> bool:
    kind = item["type"]
    return kind in ("reasoning", "function_call") or (kind == "message" and item["role"] == "assistant")


def _origin(item: Item) -> str | None:
    """The response whose output an item is, where its id tells."""
    match = _OURS.match(item["id"])
    return match.group(1) if match and not match.group(2) else None


def _text_of(part: Item) -> str:
    text: str = part["refusal"] if part["type"] == "refusal" else part["text"]
    return text


# --- tools ---


def tools_of(body: InputFields) -> tuple[Tool, ...]:
    """Raises InvalidRequest or Unsupported, naming the path."""

    def read(given: dict[str, Any], path: str) -> Tool:
        tool = body.nested(given, ResponseTool, path)
        return Tool(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)

    return own_tools(body, body.tools, read)


def choice_of(body: InputFields) -> Choice:
    """Raises InvalidRequest or Unsupported."""

    def name_of(given: dict[str, Any], path: str) -> str:
        return body.nested(given, FunctionChoice, path).name

    def allowed_of(given: dict[str, Any], path: str) -> AllowedNames:
        choice = body.nested(given, AllowedChoice, path)
        places = [(tool, f"{path}.tools.{index}") for index, tool in enumerate(choice.tools)]
        return AllowedNames(choice.mode, frozenset(name_of(own(tool, at), at) for tool, at in places))

    return openai_choice(body.tool_choice, name_of, allowed_of)
