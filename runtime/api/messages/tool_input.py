"""A tool call's arguments as clients of /v1/messages need them: JSON at every moment, whatever the model writes.

Their helpers parse the pieces of a stream together after each, and an answer's `input` is an object, so what a model
writes is passed on as long as it is the beginning of a JSON object: line feeds in strings and backslashes that escape
nothing are written as JSON has them, numbers and names come whole, and from the first wrong character on nothing
comes. Knows text only; used by blocks.py.
"""

from __future__ import annotations

import json
import re
from typing import Literal

MOST_NESTED = 100  # brackets; clients' parsers give up at some 200
LONGEST_SCALAR = 1000  # characters of a number

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_SPACE = re.compile(r"[ \t\n\r]+")
_WORD = re.compile(r"[-+.\w]+", re.ASCII)
_SCALAR = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)\Z")
_SHORT_ESCAPE = re.compile(r'\\["\\/bfnrt]')
_CODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_CODE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_LEADING, _TRAILING, _BEHIND = 0xD800, 0xDC00, 0xE000  # where halves of a surrogate pair begin and end
_REPLACEMENT = "\\ufffd"

_Expects = Literal["value", "value or end", "key", "key or end", "colon", "comma", "nothing"]


class ToolInput:
    """One call's arguments. Pieces that `push` returns are together the beginning of a JSON object, or nothing."""

    def __init__(self) -> None:
        self._expects: _Expects = "value"
        self._ends: list[str] = []  # of the brackets that are open
        self._in_string = False
        self._is_key = False
        self._held = ""  # what can't be judged yet
        self._said: list[str] = []
        self._length = 0
        self._whole = 0, ""  # characters up to the last whole value, and the brackets to close behind it
        self._broken = False

    @property
    def complete(self) -> bool:
        """Whether it is a JSON object from its beginning to its end."""
        return not self._broken and self._expects == "nothing"

    def push(self, text: str) -> str:
        """What can be passed on with `text`."""
        data, self._held = self._held + text, ""
        at, begin = 0, len(self._said)
        while at < len(data) and not self._broken and self._expects != "nothing":
            at = self._string(data, at) if self._in_string else self._structure(data, at)
        return "".join(self._said[begin:])

    def closed(self) -> str:
        """The object that came so far, without what was cut off in it."""
        length, ends = self._whole
        return "".join(self._said)[:length] + ends if length else "{}"

    # --- strings ---

    def _string(self, data: str, at: int) -> int:
        if plain := _PLAIN.match(data, at):
            return self._say(plain[0], plain.end())
        character = data[at]
        if character == '"':
            self._in_string = False
            self._say(character, at)
            if self._is_key:
                self._expects = "colon"
            else:
                self._value_ended()
            return at + 1
        if character != "\\":
            return self._say(json.dumps(character)[1:-1], at + 1)
        return self._escape(data, at)

    def _escape(self, data: str, at: int) -> int:
        if short := _SHORT_ESCAPE.match(data, at):
            return self._say(short[0], short.end())
        if _CODE_BEGUN.match(data, at):
            return self._hold(data, at)
        code = _CODE.match(data, at)
        if code is None:
            if data[at + 1] == "'":
                return self._say("'", at + 2)
            return self._say("\\\\", at + 1)  # a backslash that is meant as one
        value = int(code[1], 16)
        if not _LEADING <= value < _BEHIND:
            return self._say(code[0], code.end())
        if value >= _TRAILING:
            return self._say(_REPLACEMENT, code.end())
        if code.end() == len(data) or _CODE_BEGUN.match(data, code.end()):
            return self._hold(data, at)
        other = _CODE.match(data, code.end())
        if other is not None and _TRAILING <= int(other[1], 16) < _BEHIND:
            return self._say(code[0] + other[0], other.end())
        return self._say(_REPLACEMENT, code.end())

    # --- between them ---

    def _structure(self, data: str, at: int) -> int:
        if space := _SPACE.match(data, at):
            return self._say(space[0], space.end())
        character = data[at]
        match self._expects:
            case "value" | "value or end":
                return self._value(data, at)
            case "key" | "key or end" if character == '"':
                return self._open_string(at, is_key=True)
            case "colon" if character == ":":
                self._expects = "value"
                return self._say(character, at + 1)
            case "comma" if character == ",":
                self._expects = "key" if self._ends[-1] == "}" else "value"
                return self._say(character, at + 1)
            case "key or end" | "comma" if character == self._ends[-1]:
                return self._close(character, at)
        return self._break(at)

    def _value(self, data: str, at: int) -> int:
        character = data[at]
        if character == "{" or (character == "[" and self._ends):
            return self._open(character, at)
        if not self._ends:
            return self._break(at)  # a call takes an object
        if character == "]" and self._expects == "value or end":
            return self._close(character, at)
        if character == '"':
            return self._open_string(at, is_key=False)
        word = _WORD.match(data, at)
        if word is None or len(word[0]) > LONGEST_SCALAR:
            return self._break(at)
        if word.end() == len(data):
            return self._hold(data, at)
        if not _SCALAR.match(word[0]):
            return self._break(at)
        self._say(word[0], at)
        self._value_ended()
        return word.end()

    def _open(self, character: str, at: int) -> int:
        if len(self._ends) == MOST_NESTED:
            return self._break(at)
        self._ends.append("}" if character == "{" else "]")
        self._expects = "key or end" if character == "{" else "value or end"
        self._say(character, at)
        self._mark()
        return at + 1

    def _close(self, character: str, at: int) -> int:
        self._ends.pop()
        self._say(character, at)
        self._value_ended()
        return at + 1

    def _open_string(self, at: int, *, is_key: bool) -> int:
        self._in_string, self._is_key = True, is_key
        return self._say('"', at + 1)

    def _value_ended(self) -> None:
        self._expects = "comma" if self._ends else "nothing"
        self._mark()

    # --- what is said ---

    def _say(self, text: str, then: int) -> int:
        self._said.append(text)
        self._length += len(text)
        return then

    def _hold(self, data: str, at: int) -> int:
        self._held = data[at:]
        return len(data)

    def _break(self, at: int) -> int:
        self._broken = True
        return at

    def _mark(self) -> None:
        self._whole = self._length, "".join(reversed(self._ends))


def closed(text: str) -> str:
    """The JSON object that `text` is the beginning of, without what was cut off in it."""
    read = ToolInput()
    read.push(text)
    return read.closed()
