"""Qwen3-Coder: `<tool_call>`, `<function=name>`, and a `<parameter=key>` for each argument.

Source: the chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct. Values stand between line feeds, strings as they are.
"""

from __future__ import annotations

import re

from palmette.runtime.parsers.cursor import LONGEST_NAME, Cursor, Markers, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.json_text import call_arguments
from palmette.runtime.parsers.tool_format import CallTag
from palmette.runtime.parsers.values import Arguments

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
# A parameter whose end tag was forgotten ends where the next tag begins a line.
_VALUE_ENDS = Markers([_PARAMETER_END, "\n" + _PARAMETER, "\n" + _FUNCTION_END])
_NO_BRACKET = re.compile(r"[^>]*")


class QwenCoder:
    """A ToolFormat."""

    name = "qwen3_coder"
    opens = (_CALL, _FUNCTION)
    interrupts: tuple[str, ...] = ()
    marks = (_CALL, _CALL_END, _FUNCTION, _FUNCTION_END, _PARAMETER, _PARAMETER_END)
    new_id = staticmethod(call_id)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        if opened == _CALL:
            yield from cursor.space()
            yield from cursor.literal(_FUNCTION)
        while True:
            yield from self._function(cursor, out)
            yield from cursor.close(_FUNCTION_END)
            yield from cursor.space()
            if not (yield from cursor.skip(_FUNCTION)):
                break
        yield from cursor.close(_CALL_END)

    def _function(self, cursor: Cursor, out: Writer) -> Steps[None]:
        name = yield from cursor.run()
        yield from cursor.literal(">")
        yield from cursor.space()
        if (yield from cursor.peek()) == "{":
            out.begin(name)
            yield from call_arguments(cursor, out, (_FUNCTION_END, _CALL_END))
            return
        tag = yield from cursor.one_of(_PARAMETER, _FUNCTION_END, _CALL_END)
        arguments = Arguments(out, name)
        while tag == _PARAMETER:
            key = (yield from cursor.run(_NO_BRACKET, LONGEST_NAME)).strip()
            yield from cursor.literal(">")
            end = yield from arguments.tagged(cursor, key, _VALUE_ENDS, newlines=True)
            if end != _PARAMETER_END:
                cursor.give_back(end[1:])
            yield from cursor.space()
            tag = yield from cursor.one_of(_PARAMETER, _FUNCTION_END, _CALL_END)
        arguments.end()

    def tag(self, tool: str) -> CallTag:
        return CallTag(f"{_CALL}\n{_FUNCTION}{tool}>\n", f"\n{_FUNCTION_END}\n{_CALL_END}", _CALL)


QWEN_CODER = QwenCoder()
