"""Kimi K2: calls named `functions.name:0` in one section.

Sources: the chat templates of moonshotai/Kimi-K2-Instruct and moonshotai/Kimi-K2-Thinking, and
docs/tool_call_guidance.md there. What stands before the arguments is the call's id; the template writes it back, so it
is kept as the model gave it.
"""

from __future__ import annotations

from palmette.runtime.parsers.cursor import Cursor, NotACall, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.formats.sections import Section
from palmette.runtime.parsers.json_text import call_arguments
from palmette.runtime.parsers.tool_format import CallTag

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_NAMESPACE = "functions."
_MARKS = Section(_SECTION, _SECTION_END, _CALL, _CALL_END)


class Kimi:
    """A ToolFormat."""

    name = "kimi_k2"
    opens = (_SECTION, _CALL)
    interrupts = (_SECTION, _CALL)
    marks = (_SECTION, _SECTION_END, _CALL, _CALL_END, _ARGUMENTS)
    new_id = staticmethod(call_id)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        yield from _MARKS.read(opened, cursor, lambda: self._call(cursor, out))

    def _call(self, cursor: Cursor, out: Writer) -> Steps[None]:
        yield from cursor.space()
        given = (yield from cursor.run()).removeprefix(_NAMESPACE)
        name, _, number = given.rpartition(":")
        if not (name and number.isascii() and number.isdigit()):
            name, number = given, "0"
        yield from cursor.space()
        yield from cursor.literal(_ARGUMENTS)
        yield from cursor.space()
        if (yield from cursor.peek()) != "{":
            raise NotACall
        id = f"{_NAMESPACE}{name}:{number}"
        while out.used(id):  # the model counts calls, but not always right
            number = str(int(number) + 1)
            id = f"{_NAMESPACE}{name}:{number}"
        out.begin(name, id)
        yield from call_arguments(cursor, out, (_CALL_END,))

    def tag(self, tool: str) -> CallTag:
        begin = f"{_SECTION}{_CALL}{_NAMESPACE}{tool}:0{_ARGUMENTS}"
        return CallTag(begin, f"{_CALL_END}{_SECTION_END}", _SECTION)


KIMI = Kimi()
