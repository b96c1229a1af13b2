"""Calls written as Python: `[f(a=1), g(b="x")]` (Llama 3.2 and 4, Gemma 3), and Gemma's fenced `tool_code`.

Sources: Llama 3.2's and 4's prompt formats (llama.com/docs/model-cards-and-prompt-formats), whose system prompt asks
for `[func_name1(params_name1=params_value1 …), func_name2(params)]`; Gemma 3's function calling guide
(ai.google.dev/gemma/docs/capabilities/function-calling) for both forms. Such a list opens with no marker, so it counts
where it names a tool on offer (without tools: where no text came before it).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import Cursor, NotACall, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.json_text import call_arguments
from palmette.runtime.parsers.literals import PYTHON, CutOff, written_value
from palmette.runtime.parsers.tool_format import CallTag
from palmette.runtime.parsers.values import Arguments, Schema

_START, _END = "<|python_start|>", "<|python_end|>"
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
            try:
                value = yield from written_value(cursor, PYTHON, ")")
            except CutOff as cut:
                arguments.member(key, cut.said)
                raise
            arguments.member(key, value)
        yield from cursor.space()
        character = yield from cursor.peek()
    if arguments is None:
        arguments = Arguments(out, name)
    arguments.end()
    cursor.take(1)


class Pythonic(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat."""

    name: str = "pythonic"
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()
    opens: tuple[str, ...] = ("[", _START)
    marks: tuple[str, ...] = (_START, _END)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        if opened == _START:
            yield from cursor.space()
            yield from cursor.literal("[")
        while True:
            yield from cursor.space()
            name = yield from cursor.run(_DOTTED)
            if not out.plausible(name):
                raise NotACall
            yield from cursor.literal("(")
            yield from call_in_parentheses(cursor, out, name)
            if not (yield from cursor.close(",")):
                break
            yield from cursor.space()
            if (yield from cursor.look()) == "]":
                break
        yield from cursor.close("]")
        yield from cursor.close(_END)

    def tag(self, tool: str) -> CallTag:
        return CallTag(f"[{tool}(", ")]", f"[{tool}(")


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


PYTHONIC = Pythonic()
TOOL_CODE = ToolCode()
