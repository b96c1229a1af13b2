"""Calls written as Python: `[f(a=1), g(b="x")]` (Llama 3.2 and 4, Gemma 3, LFM2), and Gemma's fenced `tool_code`.

Sources: Llama 3.2's and 4's prompt formats (llama.com/docs/model-cards-and-prompt-formats), whose system prompt asks
for `[func_name1(params_name1=params_value1 …), func_name2(params)]`; Gemma 3's function calling guide
(ai.google.dev/gemma/docs/capabilities/function-calling) for both forms; the chat template of LiquidAI/LFM2.5-8B-A1B
(between markers). A list without a marker counts where it names a tool on offer (without tools: where no text came
before it).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import Cursor, NotACall, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.json_text import CallRule, call_arguments, call_list
from palmette.runtime.parsers.literals import PYTHON, CutOff, raw_value, string_text, written_value
from palmette.runtime.parsers.tool_format import CallTag
from palmette.runtime.parsers.values import Arguments, Schema

_FENCE, _FENCE_END = "```tool_code", "```"
_IDENTIFIER = re.compile(r"\w*")
_DOTTED = re.compile(r"[\w.\-]*")


def call_in_parentheses(cursor: Cursor, out: Writer, name: str) -> Steps[None]:
    """Reads `key=value, …)` or one JSON object and `)`; the call begins when that is certain."""
    yield from cursor.space()
    character = yield from cursor.peek()
    if character == "{":
        out.begin(name)
        yield from call_arguments(cursor, out)
        yield from cursor.close(")")
        return
    tool = out.tool(name)
    positions = Schema(tool.schema).names() if tool is not None else []
    arguments: Arguments | None = None
    while character != ")":
        if character == "," and arguments is not None:
            cursor.take(1)
        else:
            keyed = character.isidentifier()
            if not keyed and not positions:
                raise NotACall
            key = (yield from cursor.run(_IDENTIFIER)) if keyed else positions[0]
            if keyed:
                yield from cursor.space()
                yield from cursor.literal("=")
            if key in positions:
                positions.remove(key)
            if arguments is None:
                arguments = Arguments(out, name)
            yield from _value(cursor, arguments, key)
        yield from cursor.space()
        character = yield from cursor.peek()
    if arguments is None:
        arguments = Arguments(out, name)
    arguments.end()
    cursor.take(1)


def _value(cursor: Cursor, arguments: Arguments, key: str) -> Steps[None]:
    yield from cursor.space()
    if (yield from cursor.peek()) in "'\"":
        arguments.begin_string(key)
        yield from string_text(cursor, arguments.more_string)
        yield from raw_value(cursor, arguments.more_string, PYTHON, ")")  # the rest of an expression
        arguments.end_string()
        return
    try:
        value = yield from written_value(cursor, PYTHON, ")")
    except CutOff as cut:
        arguments.member(key, cut.said)
        raise
    arguments.member(key, value)


class Pythonic(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat. `open` and `close` may stand around the list; `bare`: or not."""

    name: str
    open: str
    close: str
    bare: bool
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()

    @property
    def opens(self) -> tuple[str, ...]:
        return ("[", self.open) if self.bare else (self.open,)

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.open, self.close)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        if opened == self.open:
            yield from cursor.space()
            yield from cursor.literal("[")
            yield from cursor.space()
            if (yield from cursor.peek()) == "{":
                yield from call_list(cursor, out, CallRule(ends=(self.close,)), opened=True)
                yield from cursor.close(self.close)
                return
        while True:
            yield from cursor.space()
            name = yield from cursor.run(_DOTTED)
            if opened == "[" and not out.plausible(name):
                raise NotACall
            yield from cursor.literal("(")
            yield from call_in_parentheses(cursor, out, name)
            if not (yield from cursor.close(",")):
                break
            yield from cursor.space()
            if (yield from cursor.look()) == "]":
                break
        yield from cursor.close("]")
        yield from cursor.close(self.close)

    def tag(self, tool: str) -> CallTag:
        if self.bare:
            return CallTag(f"[{tool}(", ")]", f"[{tool}(")
        return CallTag(f"{self.open}[{tool}(", f")]{self.close}", self.open)


class ToolCode(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat: calls on lines of a fenced block, printed or not, in a list or not."""

    name: str = "gemma_tool_code"
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()
    opens: tuple[str, ...] = (_FENCE,)
    marks: tuple[str, ...] = (_FENCE,)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        made = False
        while True:
            yield from cursor.space()
            if made and ((yield from cursor.skip(_FENCE_END)) or not (yield from cursor.look())):
                return
            listed = bool((yield from cursor.skip("[")))
            name = yield from cursor.run(_DOTTED)
            printed = name == "print"
            if printed:
                yield from cursor.literal("(")
                name = yield from cursor.run(_DOTTED)
            yield from cursor.literal("(")
            if out.tool(name) is None:
                name = name.rpartition(".")[2] or name  # default_api.name
            yield from call_in_parentheses(cursor, out, name)
            made = True
            while listed and (yield from cursor.close(",")):
                yield from cursor.space()
                name = yield from cursor.run(_DOTTED)
                yield from cursor.literal("(")
                yield from call_in_parentheses(cursor, out, name)
            if listed:
                yield from cursor.close("]")
            if printed:
                yield from cursor.close(")")

    def tag(self, tool: str) -> CallTag:
        return CallTag(f"{_FENCE}\n{tool}(", f")\n{_FENCE_END}", _FENCE)


PYTHONIC = Pythonic(name="pythonic", open="<|python_start|>", close="<|python_end|>", bare=True)
LFM2 = Pythonic(name="lfm2", open="<|tool_call_start|>", close="<|tool_call_end|>", bare=False)
TOOL_CODE = ToolCode()
