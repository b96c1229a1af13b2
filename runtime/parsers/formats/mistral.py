"""Mistral: `[TOOL_CALLS]` and a list of calls, or, in newer models, `[TOOL_CALLS]name[ARGS]{…}` for each call.

Sources: the chat templates of mistralai/Mistral-7B-Instruct-v0.3, Mistral-Nemo-Instruct-2407 and
Mistral-Small-3.1-24B-Instruct-2503 (a list); of Devstral-Small-2-24B-Instruct-2512 and Ministral-3-14B-Instruct-2512
(`[ARGS]`, before it `[CALL_ID]` in some); mistral-common's tokenizer versions 7 to 13. Ids have nine characters: the
templates refuse others. Each reads both forms.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import Cursor, NotACall, Steps
from palmette.runtime.parsers.emitter import Writer, short_call_id
from palmette.runtime.parsers.json_text import CallRule, call_arguments, json_calls
from palmette.runtime.parsers.tool_format import CallTag

_CALLS, _ARGUMENTS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class Mistral(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat. `named`: as the newer models write it."""

    name: str
    named: bool
    new_id: Callable[[], str] = short_call_id
    opens: tuple[str, ...] = (_CALLS,)
    interrupts: tuple[str, ...] = (_CALLS,)
    marks: tuple[str, ...] = (_CALLS, _ARGUMENTS, _ID)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        yield from cursor.space()
        if (yield from cursor.peek()) in "[{":
            yield from json_calls(cursor, out, CallRule())
            return
        name = yield from cursor.run()
        yield from cursor.space()
        if (yield from cursor.peek()) != "{":
            if (yield from cursor.skip(_ID)):
                yield from cursor.run()
            yield from cursor.literal(_ARGUMENTS)
            yield from cursor.space()
        if (yield from cursor.peek()) != "{":
            raise NotACall
        out.begin(name)
        yield from call_arguments(cursor, out)

    def tag(self, tool: str) -> CallTag:
        if self.named:
            # An end may not be empty, and nothing closes a call: it is white space, which is read over.
            return CallTag(f"{_CALLS}{tool}{_ARGUMENTS}", "\n", _CALLS)
        return CallTag(f'{_CALLS} [{{"name": "{tool}", "arguments": ', "}]", _CALLS)


MISTRAL = Mistral(name="mistral", named=False)
MISTRAL_NAMED = Mistral(name="mistral_named", named=True)
