"""What a model writes as Anthropic's content blocks: the events of a stream, and a whole message, which is made of the
same events, so that both say the same. Pure; used by routes.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from palmette.runtime.api.messages.answers import StopReason
from palmette.runtime.api.messages.tool_input import ToolInput, closed
from palmette.runtime.frontend import ChatFinish
from palmette.runtime.parsers.protocol import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    Event,
    ReasoningDelta,
    TextDelta,
)

BlockEvent = dict[str, Any]
_OURS, _THEIRS = "call_", "toolu_"  # how ids of calls begin, where no template asks for others


class Stop(NamedTuple):
    reason: StopReason
    sequence: str | None = None


class Blocks:
    """One message's blocks. `of` and `last` give the events of a stream."""

    def __init__(self, *, show_thinking: bool) -> None:
        """`show_thinking` False: thinking blocks come without their text."""
        self._show_thinking = show_thinking
        self._index = -1
        self._open: Literal["text", "thinking", "tool_use"] | None = None
        self._thoughts = blake2b(digest_size=24)
        self._input = ToolInput()
        self._broken = False

    def of(self, told: Event) -> list[BlockEvent]:
        match told:
            case TextDelta(text=text):
                return [*self._in({"type": "text", "text": ""}), self._delta("text_delta", "text", text)]
            case ReasoningDelta(text=text):
                begun = self._in({"type": "thinking", "thinking": "", "signature": ""})
                self._thoughts.update(text.encode())
                shown = [self._delta("thinking_delta", "thinking", text)] if self._show_thinking else []
                return [*begun, *shown]
            case CallBegun(id=id, name=name):
                self._input = ToolInput()
                id = _THEIRS + id.removeprefix(_OURS) if id.startswith(_OURS) else id
                return [*self.last(), *self._in({"type": "tool_use", "id": id, "name": name, "input": {}})]
            case ArgumentsDelta(text=text):
                piece = self._input.push(text)
                return [self._delta("input_json_delta", "partial_json", piece)] if piece else []
            case CallEnded():
                return self.last()

    def last(self) -> list[BlockEvent]:
        """Ends the block that is open."""
        if self._open is None:
            return []
        ended = [{"type": "content_block_stop", "index": self._index}]
        if self._open == "thinking":
            ended.insert(0, self._delta("signature_delta", "signature", self._thoughts.hexdigest()))
        elif self._open == "tool_use":
            self._broken = self._broken or not self._input.complete
        self._open = None
        return ended

    def stop(self, finish: ChatFinish, room: int | None = None) -> Stop:
        """How the message ended, its last block ended too. A call that is no JSON object counts as cut off. `room`: how
        many tokens the context had room for, where that is less than was asked for."""
        if finish.reason == "stop":
            return Stop("stop_sequence", finish.matched) if isinstance(finish.matched, str) else Stop("end_turn")
        if finish.reason == "tool_calls" and not self._broken:
            return Stop("tool_use")
        full = room is not None and finish.usage.completion_tokens >= room
        return Stop("model_context_window_exceeded" if full else "max_tokens")

    def _in(self, block: dict[str, Any]) -> list[BlockEvent]:
        """Events that leave a block of this kind open."""
        if self._open == block["type"]:
            return []
        ended = self.last()
        self._index += 1
        self._open = block["type"]
        self._thoughts = blake2b(digest_size=24)
        return [*ended, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _delta(self, kind: str, name: str, text: str) -> BlockEvent:
        delta = {"type": kind, name: text}
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def whole(events: Iterable[BlockEvent]) -> list[dict[str, Any]]:
    """The blocks that a stream's events add up to. A call's `input` is JSON text already (orjson.Fragment)."""
    return list(_blocks(events))


def _blocks(events: Iterable[BlockEvent]) -> Iterator[dict[str, Any]]:
    block: dict[str, Any] = {}
    pieces: dict[str, list[str]] = {}
    for event in events:
        match event:
            case {"type": "content_block_start", "content_block": begun}:
                block, pieces = dict(begun), {}
            case {"type": "content_block_delta", "delta": delta}:
                for name, text in delta.items():
                    if name != "type":
                        pieces.setdefault(name, []).append(text)
            case {"type": "content_block_stop"}:
                said: dict[str, Any] = {name: "".join(texts) for name, texts in pieces.items()}
                if block["type"] == "tool_use":
                    said = {"input": orjson.Fragment(closed(said.get("partial_json", "")))}
                yield {**block, **said}
