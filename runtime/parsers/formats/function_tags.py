"""Qwen3-Coder and Seed-OSS: `<tool_call>`, `<function=name>`, and a `<parameter=key>` for each argument.

Sources: the chat templates of Qwen/Qwen3-Coder-30B-A3B-Instruct (values stand between line feeds) and
ByteDance-Seed/Seed-OSS-36B-Instruct (they don't). Strings are written as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import LONGEST_NAME, Cursor, Markers, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.json_text import call_arguments
from palmette.runtime.parsers.tool_format import CallTag
from palmette.runtime.parsers.values import Arguments

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
# A parameter whose end tag was forgotten ends where the next tag begins a line.
_VALUE_ENDS = Markers([_PARAMETER_END, "\n" + _PARAMETER, "\n" + _FUNCTION_END])
_NO_BRACKET = re.compile(r"[^>]*")


class FunctionTags(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat."""

    name: str
    open: str
    close: str
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open, _FUNCTION)

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.open, self.close, _FUNCTION, _FUNCTION_END, _PARAMETER, _PARAMETER_END)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        if opened == self.open:
            yield from cursor.space()
            yield from cursor.literal(_FUNCTION)
        while True:
            yield from self._function(cursor, out)
            yield from cursor.close(_FUNCTION_END)
            yield from cursor.space()
            if not (yield from cursor.skip(_FUNCTION)):
                break
        yield from cursor.close(self.close)

    def _function(self, cursor: Cursor, out: Writer) -> Steps[None]:
        name = yield from cursor.run()
        yield from cursor.literal(">")
        yield from cursor.space()
        if (yield from cursor.peek()) == "{":
            out.begin(name)
            yield from call_arguments(cursor, out, (_FUNCTION_END, self.close))
            return
        tag = yield from cursor.one_of(_PARAMETER, _FUNCTION_END, self.close)
        arguments = Arguments(out, name)
        while tag == _PARAMETER:
            key = (yield from cursor.run(_NO_BRACKET, LONGEST_NAME)).strip()
            yield from cursor.literal(">")
            end = yield from arguments.tagged(cursor, key, _VALUE_ENDS, newlines=True)
            if end != _PARAMETER_END:
                cursor.give_back(end[1:])
            yield from cursor.space()
            tag = yield from cursor.one_of(_PARAMETER, _FUNCTION_END, self.close)
        arguments.end()

    def tag(self, tool: str) -> CallTag:
        return CallTag(f"{self.open}\n{_FUNCTION}{tool}>\n", f"\n{_FUNCTION_END}\n{self.close}", self.open)


QWEN_CODER = FunctionTags(name="qwen3_coder", open="<tool_call>", close="</tool_call>")
SEED_OSS = FunctionTags(name="seed_oss", open="<seed:tool_call>", close="</seed:tool_call>")
