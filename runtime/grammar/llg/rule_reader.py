"""Reads EBNF and GBNF: rules written `name ::= …`, into trees of parts. Errors have line and column.

Called by dialects.py; knows nothing of llguidance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import charsets
from palmette.runtime.grammar.schema.charsets import CharSet

MAX_NESTING = 100
MAX_REPEAT = 10_000

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_HEAD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*[ \t]*::=")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_COUNTS = re.compile(r"\{\s*(\d{1,9})?\s*(,?)\s*(\d{1,9})?\s*\}")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


@dataclass(frozen=True)
class Characters:
    set: CharSet


@dataclass(frozen=True)
class Reference:
    name: str


@dataclass(frozen=True)
class Together:
    items: tuple[Part, ...]


@dataclass(frozen=True)
class Either:
    options: tuple[Part, ...]


@dataclass(frozen=True)
class Repeated:
    item: Part
    least: int
    most: int | None


Part = Characters | Reference | Together | Either | Repeated


class RuleReader:
    """Reads `name ::= alternatives` rules."""

    def __init__(self, text: str, kind: str) -> None:
        self.text = text
        self.kind = kind
        self.at = 0

    def error(self, what: str) -> GrammarError:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - (self.text.rfind("\n", 0, self.at) + 1) + 1
        return GrammarError(
            f"The {self.kind} grammar has {what} at line {line}, column {column}.",
            hint='Rules are written `name ::= "text" other-rule | [a-z]+`; the first is called root.',
            param=self.kind,
        )

    def rules(self) -> dict[str, Part]:
        rules: dict[str, Part] = {}
        self.skip()
        while self.at < len(self.text):
            head = _HEAD.match(self.text, self.at)
            if head is None:
                raise self.error("no rule")
            name = head.group()[:-3].strip()
            if name in rules:
                raise self.error(f"a second rule {name!r}")
            self.at = head.end()
            rules[name] = self.either(0)
            if self.at < len(self.text) and not _HEAD.match(self.text, self.at):
                raise self.error(f"an unexpected {self.text[self.at]!r}")
        return rules

    def skip(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None
        self.at = space.end()

    def either(self, depth: int) -> Part:
        if depth > MAX_NESTING:
            raise self.error(f"more than {MAX_NESTING} nested groups")
        options = [self.together(depth)]
        while self.at < len(self.text) and self.text[self.at] == "|":
            self.at += 1
            options.append(self.together(depth))
        return options[0] if len(options) == 1 else Either(tuple(options))

    def together(self, depth: int) -> Part:
        items: list[Part] = []
        self.skip()
        while self.at < len(self.text) and self.text[self.at] not in "|)" and not _HEAD.match(self.text, self.at):
            items.append(self.repeated(self.item(depth)))
            self.skip()
        return items[0] if len(items) == 1 else Together(tuple(items))

    def item(self, depth: int) -> Part:
        character = self.text[self.at]
        if character in "\"'":
            return self.literal(character)
        if character == "[":
            return Characters(self.bracket())
        if character == ".":
            self.at += 1
            return Characters(charsets.ANY)
        if character == "(":
            self.at += 1
            inner = self.either(depth + 1)
            if self.at >= len(self.text) or self.text[self.at] != ")":
                raise self.error("a group that isn't closed")
            self.at += 1
            return inner
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise self.error(f"an unexpected {character!r}")
        self.at = name.end()
        return Reference(name.group())

    def repeated(self, item: Part) -> Part:
        while self.at < len(self.text) and self.text[self.at] in "*+?{":
            counts = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self.text[self.at])
            if counts is None:
                braces = _COUNTS.match(self.text, self.at)
                if braces is None or (braces[1] is None and braces[3] is None):
                    raise self.error("a repetition that isn't {m}, {m,} or {m,n}")
                least = int(braces[1] or 0)
                most = int(braces[3]) if braces[3] else (None if braces[2] else least)
                if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
                    raise self.error(f"a repetition out of order, or of more than {MAX_REPEAT:,}")
                self.at = braces.end()
                counts = (least, most)
            else:
                self.at += 1
            item = Repeated(item, *counts)
        return item

    def literal(self, quote: str) -> Part:
        self.at += 1
        characters: list[Part] = []
        while self.at < len(self.text) and self.text[self.at] != quote:
            if self.text[self.at] == "\n":
                raise self.error("a text that isn't closed")
            characters.append(Characters(charsets.single(self.character())))
        if self.at >= len(self.text):
            raise self.error("a text that isn't closed")
        self.at += 1
        return characters[0] if len(characters) == 1 else Together(tuple(characters))

    def bracket(self) -> CharSet:
        self.at += 1
        negative = self.text.startswith("^", self.at)
        self.at += negative
        ranges: list[tuple[int, int]] = []
        while not self.text.startswith("]", self.at):
            low = ord(self.character())
            high = low
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                high = ord(self.character())
                if high < low:
                    raise self.error("a range in the wrong order")
            ranges.append((low, high))
        self.at += 1
        found = charsets.charset(ranges)
        return charsets.complement(found) if negative else found

    def character(self) -> str:
        if self.at >= len(self.text):
            raise self.error("an unexpected end")
        character = self.text[self.at]
        self.at += 1
        if 0xD800 <= ord(character) <= 0xDFFF:
            raise self.error("half a surrogate pair")
        if character != "\\":
            return character
        if self.at >= len(self.text):
            raise self.error("an unexpected end")
        escape = self.text[self.at]
        self.at += 1
        digits = {"x": 2, "u": 4, "U": 8}.get(escape)
        if digits is None:
            return _ESCAPES.get(escape, escape)
        written = self.text[self.at : self.at + digits]
        if not re.fullmatch(rf"[0-9A-Fa-f]{{{digits}}}", written):
            raise self.error(f"an escape \\{escape} without {digits} hexadecimal digits")
        self.at += digits
        code = int(written, 16)
        if code > charsets.LAST or 0xD800 <= code <= 0xDFFF:
            raise self.error("an escape that is no character")
        return chr(code)
