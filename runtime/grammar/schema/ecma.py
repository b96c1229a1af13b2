"""Reads the patterns of JSON Schema: ECMA-262 regular expressions with the u flag's character semantics.

A pattern becomes a tree of nodes; json_strings.py writes trees as terminals, found.py asks them about property names.
Refused, with the position: back-references, flags (but for (?i) at the start), and scripts in \\p{…}.
"""

from __future__ import annotations

from dataclasses import dataclass

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.regex import charset
from palmette.runtime.grammar.schema import charsets
from palmette.runtime.grammar.schema.charsets import CharSet

MAX_NESTING = 60
MAX_REPEAT = 100_000
IGNORING_CASE = "(?i)"  # at the start: no part of ECMA-262, and the same to all who read it


@dataclass(frozen=True)
class Chars:
    """One character of a set."""

    set: CharSet


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    item: Node
    least: int
    most: int | None


@dataclass(frozen=True)
class Anchor:
    """The start (or else the end) of the whole string."""

    start: bool


@dataclass(frozen=True)
class LookAhead:
    item: Node
    negative: bool


@dataclass(frozen=True)
class LookBehind:
    item: Node
    negative: bool


Node = Chars | Sequence | Choice | Repeat | Anchor | LookAhead | LookBehind

_CLASSES = {
    "d": charsets.DIGITS,
    "D": charsets.complement(charsets.DIGITS),
    "w": charsets.WORD,
    "W": charsets.complement(charsets.WORD),
    "s": charsets.SPACE,
    "S": charsets.complement(charsets.SPACE),
}
_WORD = Chars(charsets.WORD)
_STARTS = Sequence((LookBehind(_WORD, negative=True), LookAhead(_WORD, negative=False)))
_ENDS = Sequence((LookBehind(_WORD, negative=False), LookAhead(_WORD, negative=True)))
_WITHIN = Sequence((LookBehind(_WORD, negative=False), LookAhead(_WORD, negative=False)))
_OUTSIDE = Sequence((LookBehind(_WORD, negative=True), LookAhead(_WORD, negative=True)))
_BOUNDARIES = {"b": Choice((_STARTS, _ENDS)), "B": Choice((_WITHIN, _OUTSIDE))}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_CATEGORIES = {"Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Number": "N", "Punctuation": "P",
               "Decimal_Number": "Nd", "digit": "Nd", "Symbol": "S", "Separator": "Z", "Mark": "M"}  # fmt: skip


def parse(pattern: str) -> Node:
    """Raises GrammarError with the position in the pattern."""
    reader = _Reader(pattern)
    node = reader.choice(0)
    if reader.more():
        raise reader.error("an unmatched )")
    return node


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.ignores_case = pattern.startswith(IGNORING_CASE)
        self.at = len(IGNORING_CASE) if self.ignores_case else 0

    def error(self, what: str) -> GrammarError:
        shown = self.pattern if len(self.pattern) <= 200 else self.pattern[:200] + "…"
        return GrammarError(
            f"The pattern {shown!r} has {what} at position {self.at}.",
            hint="Patterns are ECMA-262 regular expressions without back-references.",
        )

    def more(self) -> bool:
        return self.at < len(self.pattern)

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    def next(self) -> str:
        if not self.more():
            raise self.error("an unexpected end")
        self.at += 1
        return self.pattern[self.at - 1]

    def choice(self, depth: int) -> Node:
        if depth > MAX_NESTING:
            raise self.error(f"more than {MAX_NESTING} nested groups")
        options = [self.sequence(depth)]
        while self.take("|"):
            options.append(self.sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while self.more() and not self.peek("|") and not self.peek(")"):
            item = self.atom(depth)
            items.append(self.repeated(item))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def atom(self, depth: int) -> Node:
        start = self.at
        character = self.next()
        if character == "(":
            return self.group(depth)
        if character == "[":
            return Chars(self.bracket())
        if character == "\\":
            return self.escape()
        if character in "^$":
            return Anchor(start=character == "^")
        if character == ".":
            return Chars(charsets.complement(charsets.LINE_ENDS))
        if character in "*+?":
            self.at = start
            raise self.error(f"nothing to repeat before {character!r}")
        if 0xD800 <= ord(character) <= 0xDFFF:
            raise self.error("half a surrogate pair")
        return Chars(self.cased(charsets.single(character)))

    def cased(self, chars: CharSet) -> CharSet:
        return charset.ignoring_case(chars) if self.ignores_case else chars

    def group(self, depth: int) -> Node:
        look: type[LookAhead | LookBehind] | None = None
        negative = False
        if self.take("?"):
            if self.take("=") or self.take("!"):
                look, negative = LookAhead, self.pattern[self.at - 1] == "!"
            elif self.take("<=") or self.take("<!"):
                look, negative = LookBehind, self.pattern[self.at - 1] == "!"
            elif self.take("<") or self.take("P<"):
                while self.next() != ">":
                    pass
            elif not self.take(":"):
                raise self.error("a group with flags or of an unknown kind")
        node = self.choice(depth + 1)
        if not self.take(")"):
            raise self.error("a group that isn't closed")
        if look is None:
            return node
        return look(node, negative)

    def repeated(self, item: Node) -> Node:
        quantifiers: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        counts: tuple[int, int | None] | None = None
        if self.more() and self.pattern[self.at] in quantifiers:
            counts = quantifiers[self.next()]
        elif self.peek("{"):
            counts = self.braces()
        if counts is None:
            return item
        self.take("?")  # laziness doesn't change the language
        if self.more() and self.pattern[self.at] in "*+?":
            raise self.error("a repeated repetition")
        if isinstance(item, Anchor | LookAhead | LookBehind) or item in _BOUNDARIES.values():
            raise self.error("a repeated assertion")
        least, most = counts
        if most is not None and most < least:
            raise self.error("bounds of a repetition in the wrong order")
        if max(least, most or 0) > MAX_REPEAT:
            raise self.error(f"a repetition of more than {MAX_REPEAT:,}")
        return Repeat(item, least, most)

    def braces(self) -> tuple[int, int | None] | None:
        """Counts, or None where the brace is a plain character."""
        close = self.pattern.find("}", self.at)
        least, comma, most = self.pattern[self.at + 1 : max(close, self.at + 1)].partition(",")
        if close < 0 or not _is_count(least) or not (most == "" or _is_count(most)):
            return None
        self.at = close + 1
        if not comma:
            return int(least), int(least)
        return int(least), int(most) if most else None

    def escape(self) -> Node:
        character = self.next()
        if character in _CLASSES:
            return Chars(_CLASSES[character])
        if character in _BOUNDARIES:
            return _BOUNDARIES[character]
        if (character.isdigit() and character != "0") or character == "k":
            raise self.error("a back-reference")
        return Chars(self.cased(self.escaped(character)))

    def escaped(self, character: str) -> CharSet:
        if character in "pP":
            return self.property(negative=character == "P")
        if character in _CONTROLS:
            return charsets.single(_CONTROLS[character])
        if character == "x":
            return charsets.single(chr(self.hexadecimal(2)))
        if character == "u":
            return charsets.single(chr(self.code_point()))
        if character == "c":
            return charsets.single(chr(ord(self.next()) % 32))
        if character.isascii() and character.isalnum():
            raise self.error(f"an unknown escape \\{character}")
        return charsets.single(character)

    def hexadecimal(self, digits: int) -> int:
        text = self.pattern[self.at : self.at + digits]
        try:
            value = int(text, 16) if len(text) == digits and text.isalnum() else None
        except ValueError:
            value = None
        if value is None:
            raise self.error(f"an escape that isn't {digits} hexadecimal digits")
        self.at += digits
        return value

    def code_point(self) -> int:
        if self.take("{"):
            close = self.pattern.find("}", self.at)
            if not 0 < close - self.at <= 6:
                raise self.error("a \\u{…} that isn't closed")
            value = self.hexadecimal(close - self.at)
            self.at += 1
        else:
            value = self.hexadecimal(4)
            if 0xD800 <= value <= 0xDBFF and self.take("\\u"):
                low = self.hexadecimal(4)
                value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00)
        if not 0 <= value <= charsets.LAST or 0xD800 <= value <= 0xDFFF:
            raise self.error("an escape that is no character")
        return value

    def property(self, negative: bool) -> CharSet:
        if not self.take("{"):
            raise self.error("a \\p without braces")
        name = ""
        while (character := self.next()) != "}":
            name += character
        name = name.removeprefix("General_Category=").removeprefix("gc=")
        found = charsets.ANY if name == "Any" else charsets.category(_CATEGORIES.get(name, name))
        if found is None:
            raise self.error(f"\\p{{{name}}}, which isn't a general category")
        return charsets.complement(found) if negative else found

    def bracket(self) -> CharSet:
        negative = self.take("^")
        members: list[CharSet] = []
        while not self.take("]"):
            low = self.member()
            if self.peek("-") and not self.peek("-]"):
                mark = self.at
                self.at += 1
                high = self.member()
                first, last = _only(low), _only(high)
                if first is None or last is None:
                    members += [low, charsets.single("-"), high]
                    continue
                if first > last:
                    self.at = mark
                    raise self.error("a range in the wrong order")
                members.append(charsets.charset([(first, last)]))
            else:
                members.append(low)
        found = self.cased(charsets.union(*members))
        return charsets.complement(found) if negative else found

    def member(self) -> CharSet:
        character = self.next()
        if character != "\\":
            if 0xD800 <= ord(character) <= 0xDFFF:
                raise self.error("half a surrogate pair")
            return charsets.single(character)
        character = self.next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character == "b":
            return charsets.single("\b")
        return self.escaped(character)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _only(chars: CharSet) -> int | None:
    """The one character of a set that has one."""
    return chars[0][0] if len(chars) == 1 and chars[0][0] == chars[0][1] else None
