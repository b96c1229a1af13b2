"""FunctionGemma and Gemma 4: `call:name{key:value, …}` between markers, strings in quotes that nothing else contains.

Sources: the model card of google/functiongemma-270m-it (`<start_function_call>`, `<escape>`) and the chat template of
google/gemma-4-31B-it (`<|tool_call>`, `<|"|>`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import LONGEST_NAME, Cursor, Markers, NotACall, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.json_text import rest_of_object
from palmette.runtime.parsers.literals import CutOff, Quotes, written_value
from palmette.runtime.parsers.tool_format import CallTag
from palmette.runtime.parsers.values import Arguments

_KEY = re.compile(r"[^:{}<,]*")


class GemmaCalls(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat."""

    name: str
    open: str
    close: str
    quote: str
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.open, self.close, self.quote)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        yield from cursor.space()
        yield from cursor.literal("call:")
        name = yield from cursor.run()
        yield from cursor.space()
        yield from cursor.literal("{")
        yield from cursor.space()
        if (yield from cursor.peek()) == '"':
            out.begin(name)
            if (yield from rest_of_object(cursor, out.arguments, (self.close,))):
                out.end()
            else:
                out.abandon()
        else:
            yield from self._members(cursor, Arguments(out, name))
        yield from cursor.close(self.close)

    def _members(self, cursor: Cursor, arguments: Arguments) -> Steps[None]:
        quotes = Quotes((self.quote,), escapes=False)
        while True:
            yield from cursor.space()
            character = yield from cursor.peek()
            if character in ",}":
                cursor.take(1)
                if character == "}":
                    arguments.end()
                    return
                continue
            if (yield from cursor.skip(self.quote)):
                key = yield from cursor.run(_KEY, LONGEST_NAME)
                yield from cursor.literal(self.quote)
            else:
                key = yield from cursor.run(_KEY, LONGEST_NAME)
            yield from cursor.space()
            yield from cursor.literal(":")
            yield from cursor.space()
            if (yield from cursor.skip(self.quote)):
                yield from arguments.tagged(cursor, key.strip(), Markers([self.quote]), string=True)
                yield from cursor.space()
                if (yield from cursor.peek()) not in ",}":
                    raise NotACall
                continue
            try:
                value = yield from written_value(cursor, quotes, "}")
            except CutOff as cut:
                arguments.member(key.strip(), cut.said)
                raise
            arguments.member(key.strip(), value)

    def tag(self, tool: str) -> CallTag:
        return CallTag(f"{self.open}call:{tool}", self.close, self.open)


FUNCTION_GEMMA = GemmaCalls(
    name="function_gemma", open="<start_function_call>", close="<end_function_call>", quote="<escape>"
)
GEMMA4 = GemmaCalls(name="gemma4", open="<|tool_call>", close="<tool_call|>", quote='<|"|>')
