"""Values that are written like a language's literals: Python's, and Gemma's with its own quotes.

A value's text is found while it comes (`raw_value`), and read when it is whole (`read_literal`). Nothing is evaluated.
Used by the pythonic and Gemma formats.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from functools import lru_cache
from typing import Any

import msgspec

from palmette.runtime.parsers.cursor import Cursor, Ended, Markers, Sink, Steps
from palmette.runtime.parsers.json_text import clean, encode

DEEPEST = 64

_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|N\{([^}]*)\}|([0-7]{1,3})|(\n)|(.))", re.DOTALL
)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "/": "/"}
_OCTAL = "01234567"
_DIGITS = {"x": (string.hexdigits, 2), "u": (string.hexdigits, 4), "U": (string.hexdigits, 8)}
_NAME_END = Markers(["}"])
_KEEP = "\\'\""
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_WORD = re.compile(r"[^\s,:(){}\[\]]+")
_PREFIX = re.compile(r"[rRuUbBfF]{1,2}(?=['\"])")


class Quotes(msgspec.Struct, frozen=True):
    """How strings are written: what opens them (which also closes them), and whether a backslash escapes."""

    texts: tuple[str, ...]
    escapes: bool


PYTHON = Quotes(('"""', "'''", '"', "'"), escapes=True)


def raw_value(cursor: Cursor, sink: Sink, quotes: Quotes, closer: str) -> Steps[None]:
    """Passes the text of a value to `sink`, up to a comma or `closer` outside of strings and brackets, not consumed.

    Raises Ended where the text ends before (what there was has gone to `sink`).
    """
    firsts = "".join(sorted({text[0] for text in quotes.texts}))
    outside = re.compile("[" + re.escape("()[]{}," + firsts) + "]")
    depth = 0
    quote = ""
    while True:
        text, begin = cursor.window
        at = begin
        while True:
            if quote:
                found = _string_end(text, at, quote, quotes.escapes)
                if found is None:
                    at = _certain(text, at, quote, quotes.escapes, ended=cursor.ended)
                    break
                at, quote = found, ""
                continue
            match = outside.search(text, at)
            if match is None:
                at = len(text)
                break
            start, character = match.start(), match[0]
            rest = text[start : start + max(map(len, quotes.texts))]
            if depth == 0 and (character in closer or character == ","):
                if start > begin:
                    sink(cursor.take(start - begin))
                return
            if character in "([{":
                depth += 1
            elif character in ")]}":
                depth = max(0, depth - 1)
            elif not cursor.ended and any(one != rest and one.startswith(rest) for one in quotes.texts):
                at = start  # which quote it is depends on what follows
                break
            else:
                quote = next((one for one in quotes.texts if rest.startswith(one)), "")
            at = start + (len(quote) or 1)
        if at > begin:
            sink(cursor.take(at - begin))
        yield from cursor.more(sink)


@lru_cache
def _string_marks(quote: str, escapes: bool) -> re.Pattern[str]:
    return re.compile(re.escape(quote) + (r"|\\." if escapes else ""), re.DOTALL)


def _string_end(text: str, at: int, quote: str, escapes: bool) -> int | None:
    """Where, behind its closing quote, a string ends that is open at `at`."""
    for mark in _string_marks(quote, escapes).finditer(text, at):
        if mark[0] == quote:
            return mark.end()
    return None


def _certain(text: str, at: int, quote: str, escapes: bool, *, ended: bool) -> int:
    """How much of a text that is inside a string can be passed on: not a backslash without its character, nor what
    may begin the closing quote."""
    if ended:
        return len(text)
    if escapes:
        while (slash := text.find("\\", at)) >= 0:
            if slash + 1 == len(text):
                return slash
            at = slash + 2
    for start in range(max(at, len(text) - len(quote) + 1), len(text)):
        if quote.startswith(text[start:]):
            return start
    return len(text)


def read_literal(text: str, quotes: Quotes = PYTHON) -> Any:
    """The value of a literal: strings, numbers, words, lists, tuples (as lists), dicts. Raises ValueError."""
    reader = _Literal(text, quotes)
    value = reader.value(DEEPEST)
    reader.space()
    if reader.at < len(text):
        raise ValueError(f"{text[reader.at :]!r} follows the value")
    return value


def literal_json(text: str, quotes: Quotes = PYTHON) -> str:
    """The JSON of a literal; a string with the text itself where it is none (an expression)."""
    try:
        return encode(read_literal(text, quotes))
    except (ValueError, RecursionError):
        return encode(clean(text.strip()))


def partial_json(text: str, quotes: Quotes = PYTHON) -> str:
    """What can be read of a literal that was cut off: a string without its closing quote, other text as it is."""
    said = text.lstrip()
    for quote in quotes.texts:
        if said.startswith(quote):
            return encode(clean(said.removeprefix(quote)))[:-1]
    return said


class _Literal:
    """A recursive descent over one whole value."""

    def __init__(self, text: str, quotes: Quotes) -> None:
        self.text = text
        self.at = 0
        self._quotes = quotes

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _next(self) -> str:
        self.space()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        if depth == 0:
            raise ValueError("nested too deeply")
        character = self._next()
        if character == "{":
            return self._dict(depth)
        if character in ("[", "("):
            return self._list("]" if character == "[" else ")", depth)
        strings = []
        while (piece := self._string()) is not None:
            strings.append(piece)
            self.space()
        if strings:
            return clean("".join(strings))
        return self._word()

    def _list(self, closer: str, depth: int) -> list[Any]:
        self.at += 1
        values: list[Any] = []
        while (character := self._next()) != closer:
            if character == ",":
                self.at += 1
            else:
                values.append(self.value(depth - 1))
        self.at += 1
        return values

    def _dict(self, depth: int) -> dict[str, Any]:
        self.at += 1
        values: dict[str, Any] = {}
        while (character := self._next()) != "}":
            if character == ",":
                self.at += 1
                continue
            key = self.value(depth - 1)
            if self._next() != ":":
                raise ValueError("a key without a value")
            self.at += 1
            values[key if isinstance(key, str) else encode(key)] = self.value(depth - 1)
        self.at += 1
        return values

    def _string(self) -> str | None:
        raw = False
        start = self.at
        if self._quotes.escapes and (prefix := _PREFIX.match(self.text, start)):
            raw = "r" in prefix[0].lower()
            start = prefix.end()
        for quote in self._quotes.texts:
            if self.text.startswith(quote, start):
                end = _string_end(self.text, start + len(quote), quote, self._quotes.escapes)
                if end is None:
                    raise ValueError("a string without an end")
                self.at = end
                body = self.text[start + len(quote) : end - len(quote)]
                return unescape(body) if self._quotes.escapes and not raw else body
        return None

    def _word(self) -> Any:
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise ValueError("a value is missing")
        self.at = match.end()
        word = match[0]
        if word in _WORDS:
            return _WORDS[word]
        for number in (int, _real, _based):
            try:
                return number(word)
            except ValueError:
                continue
        return clean(word)


def _real(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(word)
    return value


def _based(word: str) -> int:
    return int(word, 0)


def unescape(text: str) -> str:
    """The string that a Python string literal's body means; unknown escapes stay as they are."""
    return _ESCAPE.sub(_meant, text) if "\\" in text else text


def _meant(match: re.Match[str]) -> str:
    hex2, hex4, hex8, name, octal, line, other = match.groups()
    if line:
        return ""
    if octal:
        return chr(int(octal, 8))
    code = hex2 or hex4 or hex8
    if code:
        return chr(int(code, 16)) if int(code, 16) < 0x110000 else match[0]
    if name is not None:
        try:
            return unicodedata.lookup(name)
        except KeyError:
            return match[0]
    return _SIMPLE.get(other, other if other in _KEEP else match[0])


def string_text(cursor: Cursor, sink: Sink) -> Steps[None]:
    """Passes the text that a Python string means to `sink` as it comes; strings that follow each other are one.

    The cursor stands at the opening quote, afterwards at what follows the string but white space. Raises Ended.
    """
    pending = ""  # a surrogate that waits for its other half

    def mean(text: str) -> None:
        nonlocal pending
        text = pending + text
        pending = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        if said := text.removesuffix(pending):
            sink(clean(said))

    while (quote := (yield from cursor.look())) and quote in "'\"":
        cursor.take(1)
        if (yield from cursor.look()) == quote:
            cursor.take(1)
            if (yield from cursor.look()) == quote:
                cursor.take(1)
                quote *= 3
            else:
                quote = ""  # an empty string
        if quote:
            marks = Markers([quote, "\\"])
            while (yield from cursor.until(marks, mean)) != quote:
                mean(unescape("\\" + (yield from _escaped(cursor))))
        yield from cursor.space()
    if pending:
        sink(clean(pending))


def _escaped(cursor: Cursor) -> Steps[str]:
    """Consumes what belongs to a backslash."""
    yield from cursor.peek()
    text = cursor.take(1)
    if text == "N":
        name: list[str] = []
        if (yield from cursor.skip("{")):
            yield from cursor.until(_NAME_END, name.append)
            return "N{" + "".join(name) + "}"
        return text
    digits, longest = _DIGITS.get(text, (_OCTAL, 2) if text in _OCTAL else ("", 0))
    for _ in range(longest):
        if (yield from cursor.peek()) not in digits:
            break
        text += cursor.take(1)
    return text


class CutOff(Ended):
    """The text ended within a value; `said` is what there was of it, as the beginning of JSON text."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


def written_value(cursor: Cursor, quotes: Quotes, closer: str) -> Steps[str]:
    """Consumes a value up to a comma or `closer` and returns its JSON.

    Where the text ends before, raises CutOff with what can be read.
    """
    pieces: list[str] = []
    try:
        yield from raw_value(cursor, pieces.append, quotes, closer)
    except Ended:
        raise CutOff(partial_json("".join(pieces), quotes)) from None
    return literal_json("".join(pieces), quotes)
