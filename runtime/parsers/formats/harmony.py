"""Harmony, the format of gpt-oss: messages with headers; channels analysis, commentary and final; calls by recipient.

Sources: OpenAI's "harmony response format" (openai-cookbook, articles/openai-harmony.md) and the chat template of
openai/gpt-oss-20b. The prompt ends with `<|start|>assistant`, so an output begins inside a header. A call's recipient
may stand in the role or in the channel; the end token of a call is a stop token, so an output needn't contain it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from palmette.runtime.parsers.cursor import Cursor, Markers, NotACall, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.json_text import call_arguments
from palmette.runtime.parsers.tool_format import CallTag

_START, _CHANNEL, _MESSAGE, _CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_RECIPIENT = " to=functions."
_NAMESPACE = "functions."
_HEADER_ENDS = Markers([_MESSAGE, _START, *_ENDS])
_BODY_ENDS = Markers([_START, *_ENDS])
_TO = re.compile(r"(?:^|\s)to=([^\s<]+)")
_ON = re.compile(re.escape(_CHANNEL) + r"\s*(\w*)")
LONGEST_HEADER = 512


class Harmony:
    """A ToolFormat that is also the format of reasoning and text: a message of any kind is read like a call."""

    name = "harmony"
    opens = (_START, _CHANNEL, _RECIPIENT, *_ENDS)
    interrupts: tuple[str, ...] = ()
    marks = (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS)
    new_id = staticmethod(call_id)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        if opened in _ENDS:
            cursor.settle()
            return
        if opened == _RECIPIENT and out.text_said:
            raise NotACall  # words of a text, not the rest of the prompt's header
        pieces = [opened]
        end = yield from cursor.until(_HEADER_ENDS, pieces.append, LONGEST_HEADER)
        if end != _MESSAGE:
            if end == _START:
                cursor.give_back(end)
            raise NotACall
        header = "".join(pieces)
        recipient = _TO.search(header)
        channel = _ON.search(header)
        cursor.settle()
        if recipient and recipient[1] != "assistant" and out.offered:
            yield from self._call(cursor, out, recipient[1].removeprefix(_NAMESPACE))
        elif channel and channel[1] == "analysis":
            yield from self._body(cursor, out.reasoning)
            out.end_reasoning()
        else:
            out.new_text()
            yield from self._body(cursor, out.text)

    def _body(self, cursor: Cursor, sink: Callable[[str], None]) -> Steps[None]:
        end = yield from cursor.until(_BODY_ENDS, sink)
        if end == _START:
            cursor.give_back(end)
        cursor.settle()

    def _call(self, cursor: Cursor, out: Writer, name: str) -> Steps[None]:
        yield from cursor.space()
        out.begin(name)
        if (yield from cursor.peek()) == "{":
            yield from call_arguments(cursor, out, (*_ENDS, _START))
            yield from cursor.close(*_ENDS)
            return
        # Of a built-in tool, which takes code, or of a function that takes nothing.
        said = False

        def more(text: str) -> None:
            nonlocal said
            said = True
            out.arguments(text)

        yield from self._body(cursor, more)
        if not said:
            out.arguments("{}")
        out.end()

    def tag(self, tool: str) -> CallTag:
        begin = f"{_CHANNEL}commentary to={_NAMESPACE}{tool} {_CONSTRAIN}json{_MESSAGE}"
        return CallTag(begin, _ENDS[2], f"{_CHANNEL}commentary to=")


HARMONY = Harmony()
ANSWER = CallTag(f"{_CHANNEL}final{_MESSAGE}", "<|return|>", f"{_CHANNEL}final")  # where it must meet a schema
THOUGHT = {"begin": f"{_CHANNEL}analysis{_MESSAGE}", "end": f"<|end|>{_START}assistant"}


def opening(prompt: str) -> str:
    """The end of a prompt that lies in an assistant's message: its header, as far as the prompt has it."""
    start = prompt.rfind(_START)
    header = prompt[start:] if start >= 0 else ""
    return header if header.startswith(_START + "assistant") and _CHANNEL in header else ""
