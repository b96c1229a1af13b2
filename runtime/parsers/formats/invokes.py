"""Formats with `<invoke name="…">` and `<parameter name="…">`: DeepSeek's DSML (V3.2, V4) and MiniMax M2.

Sources: encoding/encoding_dsv32.py of deepseek-ai/DeepSeek-V3.2 (and the template made from it); the chat template of
MiniMaxAI/MiniMax-M2. DSML says of each parameter whether it is a string; MiniMax leaves that to the schema.
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

_NO_QUOTE = re.compile(r'[^">]*')


class Invokes(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat. `blocks`: what may stand around the calls, the first being what the model is asked for;
    `prefix`: what its inner tags begin with."""

    name: str
    blocks: tuple[str, ...]
    prefix: str = ""
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()

    @property
    def _invoke(self) -> str:
        return f'<{self.prefix}invoke name="'

    @property
    def _invoke_end(self) -> str:
        return f"</{self.prefix}invoke>"

    @property
    def _parameter(self) -> str:
        return f'<{self.prefix}parameter name="'

    @property
    def _parameter_end(self) -> str:
        return f"</{self.prefix}parameter>"

    @property
    def _block_ends(self) -> tuple[str, ...]:
        return tuple(f"</{block}>" for block in self.blocks)

    @property
    def opens(self) -> tuple[str, ...]:
        return (*(f"<{block}>" for block in self.blocks), self._invoke)

    @property
    def marks(self) -> tuple[str, ...]:
        special = (self.prefix,) if self.prefix else ()  # ｜DSML｜ is a token of its own
        return (*self.opens, *self._block_ends, self._invoke_end, self._parameter, self._parameter_end, *special)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        if opened != self._invoke:
            yield from cursor.space()
            yield from cursor.literal(self._invoke)
        while True:
            yield from self._call(cursor, out)
            yield from cursor.close(self._invoke_end)
            yield from cursor.space()
            if not (yield from cursor.skip(self._invoke)):
                break
        yield from cursor.close(*self._block_ends)

    def _call(self, cursor: Cursor, out: Writer) -> Steps[None]:
        name = yield from cursor.run(_NO_QUOTE, LONGEST_NAME)
        yield from cursor.literal('">')
        yield from cursor.space()
        if (yield from cursor.peek()) == "{":
            out.begin(name)
            yield from call_arguments(cursor, out, (self._invoke_end,))
            return
        tag = yield from cursor.one_of(self._parameter, self._invoke_end)
        arguments = Arguments(out, name)
        ends = Markers([self._parameter_end])
        while tag == self._parameter:
            key = yield from cursor.run(_NO_QUOTE, LONGEST_NAME)
            yield from cursor.literal('"')
            string = yield from self._is_string(cursor)
            yield from arguments.tagged(cursor, key, ends, string=string)
            yield from cursor.space()
            tag = yield from cursor.one_of(self._parameter, self._invoke_end)
        arguments.end()

    def _is_string(self, cursor: Cursor) -> Steps[bool | None]:
        yield from cursor.space()
        said = yield from cursor.one_of(">", 'string="true">', 'string="false">')
        return None if said == ">" else said == 'string="true">'

    def tag(self, tool: str) -> CallTag:
        block = self.blocks[0]
        return CallTag(f'<{block}>\n{self._invoke}{tool}">\n', f"\n{self._invoke_end}\n</{block}>", f"<{block}>")


_DSML = "｜DSML｜"
DEEPSEEK_V32 = Invokes(name="deepseek_v32", blocks=(f"{_DSML}function_calls", f"{_DSML}tool_calls"), prefix=_DSML)
DEEPSEEK_V4 = Invokes(name="deepseek_v4", blocks=(f"{_DSML}tool_calls", f"{_DSML}function_calls"), prefix=_DSML)
MINIMAX_M2 = Invokes(name="minimax_m2", blocks=("minimax:tool_call",))
