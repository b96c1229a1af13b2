"""Anthropic's messages read into those of a chat turn (runtime/frontend/chat_turn.py).

Keeps the rules of that API: turns of one role that follow one another are one, every call is answered in the very next
turn, results come before any text. Used by turn.py.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.messages.schemas import (
    MessageParam,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TurnFields,
)
from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.frontend import ChatMessage, ToolCall

BETWEEN = "\n"  # text blocks that a client wrote one after another

_TEXT: dict[str, type[Body]] = {"text": TextBlock}
_KINDS: dict[str, dict[str, type[Body]]] = {  # blocks that a message of each role may have
    "user": {"text": TextBlock, "tool_result": ToolResultBlock},
    "assistant": {
        "text": TextBlock,
        "thinking": ThinkingBlock,
        "redacted_thinking": RedactedThinkingBlock,
        "tool_use": ToolUseBlock,
    },
    "system": _TEXT,
}
_KNOWN = frozenset(kind for kinds in _KINDS.values() for kind in kinds)

B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True)
class _Part:
    """A block of content, and where it lies. `texts`: of a tool's result."""

    block: Body
    path: str
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Turn:
    """The parts of consecutive messages of one role; `path`: of the last of them."""

    role: str
    parts: list[_Part]
    path: str

    def of(self, kind: type[B]) -> list[tuple[B, str]]:
        return [(part.block, part.path) for part in self.parts if isinstance(part.block, kind)]

    @property
    def texts(self) -> list[str]:
        return _texts(self.parts)


def messages_of(body: TurnFields) -> tuple[tuple[ChatMessage, ...], bool]:
    """The conversation, and whether the output goes on with its last message."""
    if not body.messages:
        raise InvalidRequest("'messages' is empty.", hint="Send at least one.", param="messages")
    turns = list(_turns(body))
    last = turns[-1]
    continued = last.role == "assistant" and bool(last.parts)
    messages: list[ChatMessage] = []
    calls: dict[str, str] = {}  # of the turn before: id → path
    for turn in turns:
        if turn.role == "user":
            messages += _user(turn, calls)
            calls = {}
            continue
        _check_answered(calls, turn.path)
        calls = {}
        if turn.role == "system":
            messages.append(ChatMessage(role="system", content=BETWEEN.join(turn.texts)))
        else:
            messages.append(_assistant(turn))
            calls = _new_calls(turn)
    _check_answered(calls, last.path)
    if last.role == "assistant" and not continued:
        messages.pop()  # nothing to go on with
    if continued and isinstance(last.parts[-1].block, ThinkingBlock | RedactedThinkingBlock):
        raise InvalidRequest(
            f"{last.parts[-1].path}: the last message, which the output goes on with, ends with thinking.",
            hint="End it with the beginning of the answer, or leave it out.",
            param=last.parts[-1].path,
        )
    return tuple(messages), continued


def _turns(body: TurnFields) -> Iterator[_Turn]:
    read: list[_Turn] = []
    if instructions := list(_parts(body, body.system, "system", _TEXT)):
        read.append(_Turn("system", instructions, "system"))
    for index, given in enumerate(body.messages):
        path = f"messages.{index}"
        message = body.nested(given, MessageParam, path)
        parts = list(_parts(body, message.content, f"{path}.content", _KINDS[message.role]))
        if not parts and message.role != "assistant":  # which may have had nothing to say
            raise InvalidRequest(f"{path}.content is empty.", hint="Leave the message out.", param=f"{path}.content")
        read.append(_Turn(message.role, parts, path))
    for role, group in groupby(read, key=lambda turn: turn.role):
        same = list(group)
        yield _Turn(role, [part for turn in same for part in turn.parts], same[-1].path)


def _parts(
    body: TurnFields, content: str | Sequence[Any], path: str, kinds: Mapping[str, type[Body]]
) -> Iterator[_Part]:
    """Blocks that say something. Raises InvalidRequest for a block that isn't of one of `kinds`."""
    if isinstance(content, str):
        if content:
            yield _Part(TextBlock(type="text", text=content), path)
        return
    for index, given in enumerate(content):
        at = f"{path}.{index}"
        block = _block(body, given, at, kinds)
        if isinstance(block, ToolResultBlock):
            yield _Part(block, at, tuple(_texts(_parts(body, block.content, f"{at}.content", _TEXT))))
        elif not isinstance(block, TextBlock) or block.text:
            yield _Part(block, at)


def _texts(parts: Iterable[_Part]) -> list[str]:
    return [part.block.text for part in parts if isinstance(part.block, TextBlock)]


def _block(body: TurnFields, given: Any, path: str, kinds: Mapping[str, type[Body]]) -> Body:
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(kind, str):
        raise InvalidRequest(f"{path}: {reprlib.repr(given)} is no content block: it has no type.", param=path)
    if kind in kinds:
        return body.nested(given, kinds[kind], path)
    if kind in _KNOWN:
        raise InvalidRequest(f"{path}: a block of type {kind!r} can't stand here.", param=f"{path}.type")
    raise Unsupported(
        f"{path}: content of type {reprlib.repr(kind)} is not supported; the model reads text only.",
        param=f"{path}.type",
    )


def _assistant(turn: _Turn) -> ChatMessage:
    """The blocks of an answer are pieces of one output: joined they are what the model wrote."""
    calls = tuple(
        ToolCall(id=block.id, name=block.name, arguments=_json(block.input, f"{path}.input"))
        for block, path in turn.of(ToolUseBlock)
    )
    thoughts = "".join(block.thinking for block, _ in turn.of(ThinkingBlock))
    return ChatMessage(
        role="assistant",
        content="".join(turn.texts) or (None if calls else ""),
        reasoning=thoughts or None,
        tool_calls=calls,
    )


def _json(value: dict[str, Any], path: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise InvalidRequest(f"{path} is nested too deeply.", hint="Shorten it.", param=path) from None


def _new_calls(turn: _Turn) -> dict[str, str]:
    """The calls of an assistant's turn that the next turn answers. Raises InvalidRequest for an id given twice; turns
    may use one again, since some models number their calls anew in each."""
    calls: dict[str, str] = {}
    for block, path in turn.of(ToolUseBlock):
        if block.id in calls:
            raise InvalidRequest(
                f"{path}.id: {reprlib.repr(block.id)} is the id of another call.",
                hint="Give each call an id of its own.",
                param=f"{path}.id",
            )
        calls[block.id] = path
    return calls


def _user(turn: _Turn, calls: dict[str, str]) -> Iterator[ChatMessage]:
    """What the tools returned, then what the user says. `calls`: of the turn before; takes the answered ones out."""
    asked, text = frozenset(calls), False
    for part in turn.parts:
        block, path = part.block, part.path
        if not isinstance(block, ToolResultBlock):
            text = True
            continue
        if block.tool_use_id not in asked:
            raise InvalidRequest(
                f"{path}.tool_use_id: {reprlib.repr(block.tool_use_id)} is no call of the message before.",
                hint="A tool_result stands in the user's message right behind the assistant's that has the tool_use.",
                param=f"{path}.tool_use_id",
            )
        if block.tool_use_id not in calls:
            raise InvalidRequest(
                f"{path}.tool_use_id: {reprlib.repr(block.tool_use_id)} is answered twice.",
                hint="Give one tool_result for each call.",
                param=f"{path}.tool_use_id",
            )
        if text:
            raise InvalidRequest(
                f"{path}: a tool_result comes behind text.", hint="Put the results of tools first.", param=path
            )
        del calls[block.tool_use_id]
    _check_answered(calls, turn.path)
    for part in turn.parts:
        if isinstance(part.block, ToolResultBlock):
            content = _result_text(part.block, part.texts)
            yield ChatMessage(role="tool", tool_call_id=part.block.tool_use_id, content=content)
    if turn.texts:
        yield ChatMessage(role="user", content=BETWEEN.join(turn.texts))


def _check_answered(calls: dict[str, str], path: str) -> None:
    """`calls`: those that have no result; `path`: of the message that should have them."""
    for id, at in calls.items():
        raise InvalidRequest(
            f"{at}: the call {reprlib.repr(id)} has no tool_result in the message behind it.",
            hint="Answer each tool_use in the next user's message.",
            param=path,
        )


def _result_text(block: ToolResultBlock, texts: Sequence[str]) -> str:
    """Templates have no place for a failure, so it is said."""
    text = BETWEEN.join(texts)
    return f"Error: {text}" if block.is_error and not text.casefold().startswith("error") else text
