"""GLM 4.5 and later: `<tool_call>name`, then a key and a value in tags for each argument.

Source: the chat templates of zai-org/GLM-4.5 and zai-org/GLM-4.6 (a line feed after each tag) and GLM-4.7 (none).
"""

from __future__ import annotations

from palmette.runtime.parsers.cursor import LONGEST_NAME, Cursor, Markers, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.json_text import CallRule, call_arguments, json_calls
from palmette.runtime.parsers.tool_format import CallTag
from palmette.runtime.parsers.values import Arguments

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_KEY_ENDS, _VALUE_ENDS = Markers([_KEY_END]), Markers([_VALUE_END])


class Glm:
    """A ToolFormat."""

    name = "glm"
    opens = (_CALL,)
    interrupts: tuple[str, ...] = ()
    marks = (_CALL, _CALL_END, _KEY, _KEY_END, _VALUE, _VALUE_END)
    new_id = staticmethod(call_id)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        yield from cursor.space()
        if (yield from cursor.peek()) == "{":
            yield from json_calls(cursor, out, CallRule(ends=(_CALL_END,)))
            yield from cursor.close(_CALL_END)
            return
        name = yield from cursor.run()
        yield from cursor.space()
        if (yield from cursor.peek()) == "{":
            out.begin(name)
            yield from call_arguments(cursor, out, (_CALL_END,))
            yield from cursor.close(_CALL_END)
            return
        tag = yield from cursor.one_of(_KEY, _CALL_END)
        arguments = Arguments(out, name)
        while tag == _KEY:
            key: list[str] = []
            yield from cursor.until(_KEY_ENDS, key.append, LONGEST_NAME)
            yield from cursor.space()
            yield from cursor.literal(_VALUE)
            yield from arguments.tagged(cursor, "".join(key).strip(), _VALUE_ENDS)
            yield from cursor.space()
            tag = yield from cursor.one_of(_KEY, _CALL_END)
        arguments.end()

    def tag(self, tool: str) -> CallTag:
        return CallTag(f"{_CALL}{tool}\n", f"\n{_CALL_END}", _CALL)


GLM = Glm()
