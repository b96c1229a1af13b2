"""Formats that put JSON objects `{"name": …, "arguments": …}` between markers: Hermes and Qwen, Granite 3, Nemotron.

Sources: the chat templates of NousResearch/Hermes-3-Llama-3.1-8B, Qwen/Qwen2.5-7B-Instruct, Qwen/Qwen3-8B,
ibm-granite/granite-4.0-h-small (`<tool_call>`); ibm-granite/granite-3.3-8b-instruct and microsoft/Phi-4-mini-instruct
(`<|tool_call|>` and a list); nvidia/NVIDIA-Nemotron-Nano-9B-v2 (`<TOOLCALL>` and a list).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import Cursor, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.json_text import CallRule, json_calls
from palmette.runtime.parsers.tool_format import CallTag


class TaggedJson(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat. `listed`: a call is asked for as a list of one; both are read in any case."""

    name: str
    open: str
    close: str
    listed: bool = False
    line_feeds: bool = False
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.open, self.close)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        yield from cursor.space()
        yield from json_calls(cursor, out, CallRule(ends=(self.close,)))
        yield from cursor.close(self.close)

    def tag(self, tool: str) -> CallTag:
        space = "\n" if self.line_feeds else ""
        begin, end = ("[", "]") if self.listed else ("", "")
        return CallTag(
            f'{self.open}{space}{begin}{{"name": "{tool}", "arguments": ', f"}}{end}{space}{self.close}", self.open
        )


HERMES = TaggedJson(name="hermes", open="<tool_call>", close="</tool_call>", line_feeds=True)
NEMOTRON = TaggedJson(name="nemotron", open="<TOOLCALL>", close="</TOOLCALL>", listed=True)
GRANITE = TaggedJson(name="granite", open="<|tool_call|>", close="<|/tool_call|>", listed=True)
