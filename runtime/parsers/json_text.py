"""JSON as models write it: values passed on as text while they come, and the objects that are calls.

Nothing is validated on the way: a value ends where its brackets do. What isn't closed stays open. Used by the formats.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import msgspec

from palmette.runtime.parsers.cursor import Cursor, Ended, NotACall, Sink, Steps
from palmette.runtime.parsers.emitter import Writer

_IN_STRING = re.compile(r'["\\]')
_SCALAR = re.compile(r"[-+.\w]*")
LONGEST_KEY = 256

NAME_KEYS = ("name", "function", "tool_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
OTHER_KEYS = ("id", "type", "index", "call_id")
WRAPPER_KEY = "tool_calls"


@lru_cache
def _outside(firsts: str) -> re.Pattern[str]:
    return re.compile("[" + re.escape('"{}[]' + firsts) + "]")


def json_value(cursor: Cursor, sink: Sink, ends: tuple[str, ...] = ()) -> Steps[bool]:
    """Passes one value to `sink` as it comes. False where one of `ends`, outside a string, cut it off.

    Raises NotACall where no value begins, Ended where the text ends in it (what there was has gone to `sink`).
    """
    first = yield from cursor.peek()
    if first in '"{[':
        return (yield from _bracketed(cursor, sink, ends))
    sink((yield from cursor.run(_SCALAR)))
    return True


def _bracketed(cursor: Cursor, sink: Sink, ends: tuple[str, ...], depth: int = 0) -> Steps[bool]:
    outside = _outside("".join(sorted({end[0] for end in ends})))
    longest = max(map(len, ends), default=0)
    quoted = escaped = False
    while True:
        text, start = cursor.window
        at = start + 1 if escaped and start < len(text) else start
        escaped = escaped and at == start
        stop = len(text)
        while found := (_IN_STRING if quoted else outside).search(text, at):
            at = found.end()
            character = found[0]
            if quoted:
                if character == "\\":
                    escaped = at == len(text)
                    at += 1
                    continue
                quoted = False
            elif character == '"':
                quoted = True
                continue
            elif character in "{[":
                depth += 1
                continue
            elif character in "}]":
                depth -= 1
            else:
                rest = text[at - 1 : at - 1 + longest]
                if any(rest.startswith(end) for end in ends):
                    _pass(cursor, sink, at - 1 - start)
                    return False
                if not cursor.ended and any(end.startswith(rest) for end in ends):
                    stop = at - 1
                    break
                continue
            if depth <= 0:
                _pass(cursor, sink, at - start)
                return True
        _pass(cursor, sink, stop - start)
        yield from cursor.more(sink)


def _pass(cursor: Cursor, sink: Sink, count: int) -> None:
    if count:
        sink(cursor.take(count))


def rest_of_object(cursor: Cursor, sink: Sink, ends: tuple[str, ...] = ()) -> Steps[bool]:
    """Like json_value, for an object whose `{` was consumed; passes that too."""
    sink("{")
    return (yield from _bracketed(cursor, sink, ends, depth=1))


def json_string(cursor: Cursor) -> Steps[str]:
    """Consumes a short string and returns what it spells. Raises NotACall where something else comes."""
    if (yield from cursor.peek()) != '"':
        raise NotACall
    pieces: list[str] = []
    yield from json_value(cursor, pieces.append)
    spelt = "".join(pieces)
    decoded = decode(spelt)
    return clean(decoded) if isinstance(decoded, str) else spelt[1:-1]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def decode(text: str) -> Any:
    """The value that `text` spells in JSON, or None where it spells none."""
    try:
        return json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def clean(text: str) -> str:
    """`text` with pairs of surrogates joined, and lone ones replaced: they can't be sent."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def call_arguments(cursor: Cursor, out: Writer, ends: tuple[str, ...] = ()) -> Steps[None]:
    """Passes the arguments of the open call on, and ends it: an object as it is, a string of JSON unpacked."""
    if (yield from cursor.peek()) == "{":
        complete = yield from json_value(cursor, out.arguments, ends)
        if complete:
            out.end()
        else:
            out.abandon()
        return
    pieces: list[str] = []
    try:
        yield from json_value(cursor, pieces.append, ends)
    except Ended:
        out.arguments("".join(pieces))
        raise
    out.arguments(_unpacked("".join(pieces)))
    out.end()


def _unpacked(text: str) -> str:
    """Arguments that aren't an object: null stands for none, a string may hold the object."""
    value = decode(text)
    if text == "null" or value == "":
        return "{}"
    if isinstance(value, str) and isinstance(decode(value), dict):
        return clean(value)
    return text


class CallRule(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as a call object. `ends`: markers that end a call, however incomplete.

    `bare`: no marker opened it, so it must name a tool on offer and have no other members than a call has.
    """

    ends: tuple[str, ...] = ()
    bare: bool = False
    wrapper: bool = False  # {"tool_calls": [call, …]} counts too


class _CallObject:
    """The members of one object that should be a call, in any order."""

    def __init__(self, cursor: Cursor, out: Writer, rule: CallRule) -> None:
        self._cursor = cursor
        self._out = out
        self._rule = rule
        self._name: str | None = None
        self._arguments: list[str] | None = None  # that came before the name
        self._made = False  # the call, or those that this object wraps
        self._complete = False
        self._nested = False  # {"type": "function", "function": {…}}, as OpenAI writes a call

    def read(self) -> Steps[None]:
        try:
            yield from self._members()
        except Ended:
            if self._complete:
                self._cursor.settle()  # the call was complete; what is missing is its own end
            raise
        if not self._made:
            if self._name is None or (self._rule.bare and self._out.tool(self._name) is None):
                raise NotACall
            self._whole("".join(self._arguments) if self._arguments is not None else "{}")

    def _members(self) -> Steps[None]:
        cursor = self._cursor
        yield from cursor.literal("{")
        while True:
            yield from cursor.space()
            if self._made:
                # The call is complete: what the text may still lack is of no interest.
                if not (yield from cursor.look()):
                    return
                if self._rule.ends and (yield from cursor.skip(*self._rule.ends)):
                    return
            character = yield from cursor.peek()
            if character in "},":
                cursor.take(1)
                if character == "}":
                    if self._made:
                        cursor.settle()
                    return
                continue
            key = yield from json_string(cursor)
            yield from cursor.space()
            yield from cursor.literal(":")
            yield from cursor.space()
            yield from self._member(key, (yield from cursor.peek()))

    def _member(self, key: str, first: str) -> Steps[None]:
        cursor, out = self._cursor, self._out
        if key in NAME_KEYS and first == '"' and self._name is None:
            name = yield from json_string(cursor)
            if not name or (self._rule.bare and not out.plausible(name)):
                raise NotACall
            self._name = name
            if self._arguments is not None:
                self._whole("".join(self._arguments))
        elif key == "function" and first == "{" and self._name is None and not self._nested:
            self._nested = True
            yield from self._members()
        elif key in ARGUMENT_KEYS and not self._made and self._arguments is None:
            if self._name is not None:
                self._made = True
                out.begin(self._name)
                yield from call_arguments(cursor, out, self._rule.ends)
                self._complete = True
            else:
                self._arguments = []
                yield from json_value(cursor, self._arguments.append, self._rule.ends)
        elif key == WRAPPER_KEY and first == "[" and self._rule.wrapper and self._name is None:
            self._made = True
            yield from call_list(cursor, out, msgspec.structs.replace(self._rule, wrapper=False))
        elif self._rule.bare and not self._made and key not in OTHER_KEYS:
            raise NotACall
        else:
            yield from json_value(cursor, lambda text: None, self._rule.ends)

    def _whole(self, arguments: str) -> None:
        assert self._name is not None
        self._made = True
        self._out.begin(self._name)
        self._out.arguments(arguments if arguments.startswith("{") else _unpacked(arguments))
        self._out.end()
        self._complete = True


def call_object(cursor: Cursor, out: Writer, rule: CallRule) -> Steps[None]:
    """Reads `{"name": …, "arguments": …}` and makes the call. Raises NotACall, Ended."""
    yield from _CallObject(cursor, out, rule).read()


def call_list(cursor: Cursor, out: Writer, rule: CallRule, *, opened: bool = False) -> Steps[None]:
    """Reads `[call, …]`, at least one. `opened`: the bracket was consumed."""
    if not opened:
        yield from cursor.literal("[")
    made = False
    while True:
        yield from cursor.space()
        if made and not (yield from cursor.look()):
            return
        character = yield from cursor.peek()
        if character == "{":
            yield from call_object(cursor, out, rule)
            made = True
        elif made and character in ",]":
            cursor.take(1)
            if character == "]":
                cursor.settle()
                return
        else:
            raise NotACall


def json_calls(cursor: Cursor, out: Writer, rule: CallRule, separator: str = "") -> Steps[None]:
    """Reads a list of calls, or one call or several one after another."""
    if (yield from cursor.peek()) == "[":
        yield from call_list(cursor, out, rule)
        return
    yield from call_object(cursor, out, rule)
    while True:
        yield from cursor.space()
        if separator and (yield from cursor.skip(separator)):
            yield from cursor.space()
            if (yield from cursor.peek()) != "{":
                raise NotACall
        if (yield from cursor.look()) != "{":
            return
        yield from call_object(cursor, out, rule)
