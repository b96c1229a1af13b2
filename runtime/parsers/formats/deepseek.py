"""DeepSeek V3, R1 and V3.1: calls between `<｜tool▁call▁begin｜>` and `<｜tool▁call▁end｜>` in one section.

Sources: the chat templates of deepseek-ai/DeepSeek-V3-0324 and DeepSeek-R1-0528 (`function`, the name, the arguments in
a fence) and of deepseek-ai/DeepSeek-V3.1 (the name and the arguments). Each reads both.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import Cursor, NotACall, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.formats.sections import Section
from palmette.runtime.parsers.json_text import call_arguments
from palmette.runtime.parsers.tool_format import CallTag

_SECTION, _SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_FENCE, _FENCE_END = "```json", "```"
_MARKS = Section(_SECTION, _SECTION_END, _CALL, _CALL_END)


class DeepSeek(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat. `fenced`: as V3 writes it."""

    name: str
    fenced: bool
    new_id: Callable[[], str] = call_id
    opens: tuple[str, ...] = (_SECTION, _CALL)
    interrupts: tuple[str, ...] = (_SECTION, _CALL)
    marks: tuple[str, ...] = (_SECTION, _SECTION_END, _CALL, _CALL_END, _SEPARATOR)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        yield from _MARKS.read(opened, cursor, lambda: self._call(cursor, out))

    def _call(self, cursor: Cursor, out: Writer) -> Steps[None]:
        yield from cursor.space()
        name = yield from cursor.run()
        yield from cursor.literal(_SEPARATOR)
        fenced = (yield from cursor.peek()) != "{"
        if fenced:
            name = yield from cursor.run()  # what stood before is the type, "function"
            yield from cursor.space()
            if (yield from cursor.peek()) != "{":
                yield from cursor.literal(_FENCE)
                yield from cursor.space()
            if (yield from cursor.peek()) != "{":
                raise NotACall
        out.begin(name)
        yield from call_arguments(cursor, out, (_FENCE_END, _CALL_END))
        if fenced:
            yield from cursor.close(_FENCE_END)

    def tag(self, tool: str) -> CallTag:
        if self.fenced:
            begin = f"{_SECTION}{_CALL}function{_SEPARATOR}{tool}\n{_FENCE}\n"
            return CallTag(begin, f"\n{_FENCE_END}{_CALL_END}{_SECTION_END}", _SECTION)
        return CallTag(f"{_SECTION}{_CALL}{tool}{_SEPARATOR}", f"{_CALL_END}{_SECTION_END}", _SECTION)


DEEPSEEK_V3 = DeepSeek(name="deepseek_v3", fenced=True)
DEEPSEEK_V31 = DeepSeek(name="deepseek_v31", fenced=False)
