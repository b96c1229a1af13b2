"""Calls as JSON objects that no marker opens: Llama 3's, and ours for models without a format of their own.

Source: the chat templates of meta-llama/Llama-3.1-8B-Instruct, Llama-3.2-3B-Instruct and Llama-3.3-70B-Instruct
(`{"name": …, "parameters": …}`, built-in tools as `<|python_tag|>name.call(key="value")`; a semicolon separates calls),
and Llama-4-Scout-17B-16E-Instruct (the same between `<|python_start|>` and `<|python_end|>`). The generic form is what
prompting.py asks for: `{"tool_calls": [{"name": …, "arguments": …}]}` or one such object; small models like to fence it
or to put it between tags that they saw in training.

An object counts as a call where it names a tool on offer (without tools: where no text came before it); any other JSON
is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import Cursor, NotACall, Steps
from palmette.runtime.parsers.emitter import Writer, call_id
from palmette.runtime.parsers.formats.pythonic import call_in_parentheses
from palmette.runtime.parsers.json_text import CallRule, json_calls
from palmette.runtime.parsers.tool_format import CallTag

_TAG, _START, _END = "<|python_tag|>", "<|python_start|>", "<|python_end|>"
_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_FENCE = "```"
_LANGUAGE = re.compile(r"[a-z_]*")
_LANGUAGES = ("json", "tool_call", "tool_calls")
_BARE = CallRule(bare=True, wrapper=True)


class LlamaJson(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat."""

    name: str = "llama_json"
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()
    opens: tuple[str, ...] = ("{", _TAG, _START)
    marks: tuple[str, ...] = (_TAG, _START, _END)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        if opened == "{":
            cursor.reopen(opened)
        else:
            yield from cursor.space()
            if (yield from cursor.peek()) not in "{[":
                yield from self._built_in(cursor, out)
                return
        rule = CallRule(bare=opened == "{", wrapper=True, ends=(_END,))
        yield from json_calls(cursor, out, rule, separator=";")
        yield from cursor.close(_END)

    def _built_in(self, cursor: Cursor, out: Writer) -> Steps[None]:
        name = (yield from cursor.run()).removesuffix(".call")
        yield from cursor.literal("(")
        yield from call_in_parentheses(cursor, out, name)
        yield from cursor.close(_END)

    def tag(self, tool: str) -> CallTag:
        return CallTag(f'{{"name": "{tool}", "parameters": ', "}", '{"name": "')


class GenericJson(msgspec.Struct, frozen=True, kw_only=True):
    """A ToolFormat."""

    name: str = "json"
    new_id: Callable[[], str] = call_id
    interrupts: tuple[str, ...] = ()
    opens: tuple[str, ...] = ("{", "[", _FENCE, _CALL)
    marks: tuple[str, ...] = (_CALL, _CALL_END)

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        if opened in "{[":
            cursor.reopen(opened)
            yield from json_calls(cursor, out, _BARE)
            return
        if opened == _FENCE and (yield from cursor.peek()) not in "{[\n":
            language = yield from cursor.run(_LANGUAGE)
            if language not in _LANGUAGES:
                raise NotACall
        yield from cursor.space()
        if opened == _CALL:
            yield from json_calls(cursor, out, CallRule(wrapper=True, ends=(_CALL_END,)))
            yield from cursor.close(_CALL_END)
            return
        if (yield from cursor.peek()) not in "{[":
            raise NotACall
        yield from json_calls(cursor, out, _BARE)
        yield from cursor.close(_FENCE)

    def tag(self, tool: str) -> CallTag:
        return CallTag(f'{{"name": "{tool}", "arguments": ', "}", '{"name": "')


LLAMA_JSON = LlamaJson()
GENERIC_JSON = GenericJson()
