"""Python's regular expressions (str patterns of `re`) → a tree, every refusal with its position in the pattern.

Called by compile.py. Follows `re` in what a pattern means, and takes in addition `\\p{…}`, `\\z` and `(?<name>…)`.
What is no regular language, or can't be told from what follows alone, is refused: back-references, look-behind,
`\\b` and `\\B`, conditionals, atomic groups and possessive repeats.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.regex.charset import (
    NOTHING,
    CharSet,
    category,
    charset,
    complement,
    escape_class,
    ignoring_case,
    single,
)
from palmette.runtime.grammar.regex.start import resolve_start
from palmette.runtime.grammar.regex.syntax import EMPTY, Chars, Choice, Look, Node, Repeat, Sequence, Start

MAX_DEPTH = 100  # groups inside groups
MAX_REPEAT = 65_535

_PLAIN = re.compile(r"(?:[^\\.^$*+?{}()\[|](?![*+?{]))+")  # a run of characters that stand for themselves
_NEWLINE = Chars(single("\n"))
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_REFUSED_GROUPS = {
    "?<=": "look-behind",
    "?<!": "look-behind",
    "?>": "an atomic group",
    "?P=": "a back-reference",
    "?(": "a conditional",
}


@dataclass(frozen=True)
class Flags:
    ignore_case: bool = False
    dot_all: bool = False
    multiline: bool = False
    ascii_only: bool = False
    verbose: bool = False


_FLAGS = {"i": "ignore_case", "s": "dot_all", "m": "multiline", "a": "ascii_only", "x": "verbose"}


def parse(pattern: str) -> Node:
    """Raises GrammarError naming the position in `pattern`."""
    return resolve_start(pattern, parse_tree(pattern))


def parse_tree(pattern: str) -> Node:
    """`parse`, with the starts of the text where they stand."""
    return _Parser(pattern).whole()


def refused(pattern: str, position: int, problem: str, hint: str) -> GrammarError:
    """The error for `problem` at `position` of `pattern`."""
    around = pattern[max(0, position - 20) : position + 20]
    return GrammarError(f"{problem} at position {position} of the regex, near {around!r}.", hint=hint, param="regex")


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.sets: dict[tuple[CharSet, bool], Chars] = {}  # equal sets are one object
        self.literals: dict[tuple[str, bool], Chars] = {}

    def whole(self) -> Node:
        flags = Flags()
        while opening := re.compile(r"\(\?([aiLmsux]+)\)").match(self.pattern, self.at):
            flags = self.flags(flags, opening[1], self.at + 2)
            self.at = opening.end()
        node = self.choice(flags)
        if self.at < len(self.pattern):
            raise self.wrong("An unbalanced ')'")
        return node

    # Characters

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    def next(self, missing: str) -> str:
        if self.at >= len(self.pattern):
            raise self.wrong(missing)
        self.at += 1
        return self.pattern[self.at - 1]

    def wrong(self, problem: str, position: int | None = None) -> GrammarError:
        hint = "Correct the pattern; it is read as Python's re reads it."
        return refused(self.pattern, self.at if position is None else position, problem, hint)

    def unsupported(self, what: str, position: int, hint: str = "Write the pattern without it.") -> GrammarError:
        return refused(self.pattern, position, f"The regex uses {what}, which can't constrain an output,", hint)

    # Structure

    def choice(self, flags: Flags) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.wrong(f"Groups nested more than {MAX_DEPTH} deep")
        options = [self.sequence(flags)]
        while self.take("|"):
            options.append(self.sequence(flags))
        self.depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self, flags: Flags) -> Node:
        items: list[Node] = []
        while True:
            if flags.verbose:
                self.skip_blank()
            if self.at >= len(self.pattern) or self.pattern[self.at] in "|)":
                break
            if self.peek("(?#"):
                end = self.pattern.find(")", self.at)
                if end < 0:
                    raise self.wrong("A comment that isn't closed")
                self.at = end + 1
                continue
            if not flags.verbose and (plain := _PLAIN.match(self.pattern, self.at)):
                items += [self.literal(character, flags) for character in plain[0]]
                self.at = plain.end()
                continue
            items.append(self.repeated(flags))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def skip_blank(self) -> None:
        blank = re.compile(r"(?:[ \t\n\r\f\v]|#[^\n]*)*").match(self.pattern, self.at)
        assert blank is not None
        self.at = blank.end()

    def repeated(self, flags: Flags) -> Node:
        start = self.at
        if self.counts() is not None:
            raise self.wrong("Nothing to repeat", start)
        item = self.item(flags)
        if flags.verbose:
            self.skip_blank()
        counts = self.counts()
        if counts is None:
            return item
        if self.pattern[start] in "^$" or self.pattern[start : start + 2] in (r"\A", r"\Z", r"\z"):
            raise self.wrong("Nothing to repeat", start)
        if self.take("+"):
            raise self.unsupported("a possessive repeat", self.at - 1, "Leave out the '+' after the repeat.")
        self.take("?")  # laziness doesn't change which texts match as a whole
        if flags.verbose:
            self.skip_blank()
        again = self.at
        if self.counts() is not None:
            raise self.wrong("A repeat of a repeat", again)
        if isinstance(item, Look):
            return item if counts[0] else EMPTY
        return Repeat(item, *counts)

    def counts(self) -> tuple[int, int | None] | None:
        """The repeat that stands here, if one does."""
        if self.take("*"):
            return 0, None
        if self.take("+"):
            return 1, None
        if self.take("?"):
            return 0, 1
        braces = re.compile(r"\{([0-9]*)(,([0-9]*))?\}").match(self.pattern, self.at)
        if braces is None or braces[0] in ("{}", "{,}"):
            if braces is not None and braces[0] == "{,}":
                self.at = braces.end()
                return 0, None
            return None
        low = int(braces[1] or 0)
        high = int(braces[3]) if braces[3] else None if braces[2] else low
        if high is not None and high < low:
            raise self.wrong(f"A repeat whose least count {low} is above its greatest {high}")
        if max(low, high or 0) > MAX_REPEAT:
            raise self.wrong(f"A repeat of more than {MAX_REPEAT:,} times")
        self.at = braces.end()
        return low, high

    def item(self, flags: Flags) -> Node:
        position = self.at
        character = self.next("The pattern ends")
        if character == "(":
            return self.group(flags, position)
        if character == "[":
            return self.set(flags, position)
        if character == ".":
            return self.chars(complement(NOTHING if flags.dot_all else single("\n")), Flags())
        if character == "^":
            return Start(position) if not flags.multiline else self.line_start(position)
        if character == "$":
            return self.end(position, flags.multiline)
        if character == "\\":
            return self.escape(flags, position)
        return self.literal(character, flags)

    def line_start(self, position: int) -> Node:
        if re.fullmatch(r"(?:\(\?[a-zA-Z]+\))*", self.pattern[:position]):
            return Start(position)
        raise self.unsupported("'^' in multi-line mode", position)

    def end(self, position: int, multiline: bool) -> Node:
        if multiline:
            line_end = Choice((_NEWLINE, Look(EMPTY, False, True, position)))
            return Look(line_end, False, False, position)
        return Look(Repeat(_NEWLINE, 0, 1), False, True, position)

    def group(self, flags: Flags, position: int) -> Node:
        for opening, what in _REFUSED_GROUPS.items():
            if self.peek(opening):
                raise self.unsupported(what, position)
        look = None
        if self.take("?=") or self.take("?!"):
            look = self.pattern[self.at - 1]
        elif named := re.compile(r"\?P?<([^\W\d]\w*)>").match(self.pattern, self.at):
            self.at = named.end()
        elif scoped := re.compile(r"\?([aiLmsux]*)(?:-([imsx]+))?(:|\))").match(self.pattern, self.at):
            if scoped[3] == ")":
                raise self.wrong("Flags for the whole pattern that don't stand at its start", position)
            flags = self.flags(flags, scoped[1], position)
            for letter in scoped[2] or "":
                flags = replace(flags, **{_FLAGS[letter]: False})
            self.at = scoped.end()
        elif self.peek("?"):
            raise self.wrong("An unknown group", position)
        inner = self.choice(flags)
        if not self.take(")"):
            raise self.wrong("A group that isn't closed", position)
        return inner if look is None else Look(inner, look == "!", False, position)

    def flags(self, flags: Flags, letters: str, position: int) -> Flags:
        if "L" in letters or {"a", "u"} <= set(letters):
            raise self.wrong(f"Flags {letters!r} that a str pattern can't have", position)
        for letter in letters:
            flags = replace(flags, ascii_only=False) if letter == "u" else replace(flags, **{_FLAGS[letter]: True})
        return flags

    # Characters and sets of them

    def chars(self, chars: CharSet, flags: Flags) -> Chars:
        key = (chars, flags.ignore_case)
        found = self.sets.get(key)
        if found is None:
            found = self.sets[key] = Chars(ignoring_case(chars) if flags.ignore_case else chars)
        return found

    def literal(self, character: str, flags: Flags) -> Chars:
        key = (character, flags.ignore_case)
        found = self.literals.get(key)
        if found is None:
            found = self.literals[key] = self.chars(single(character), flags)
        return found

    def escape(self, flags: Flags, position: int) -> Node:
        character = self.next("A lone backslash at the end")
        if character == "A":
            return Start(position)
        if character in "Zz":
            return Look(EMPTY, False, True, position)
        if character in "bB":
            hint = "Write what may stand there, or look ahead: (?=\\w), (?!\\w)."
            raise self.unsupported(f"'\\{character}'", position, hint)
        if "1" <= character <= "9":
            octal = re.compile(r"[0-3][0-7][0-7]").match(self.pattern, self.at - 1)
            if octal is None:
                raise self.unsupported("a back-reference", position)
            self.at = octal.end()
            return self.chars(single(chr(int(octal[0], 8))), flags)
        chars = self.escaped(character, flags, position)
        return self.chars(chars, Flags() if _is_class(self.pattern, position) else flags)

    def escaped(self, character: str, flags: Flags, position: int) -> CharSet:
        """What an escape stands for, inside or outside a set."""
        if character in "dDwWsS":
            return escape_class(character, flags.ascii_only)
        if character in _CONTROL:
            return single(_CONTROL[character])
        if character in _HEX_DIGITS:
            count = _HEX_DIGITS[character]
            digits = self.pattern[self.at : self.at + count]
            if not re.fullmatch(rf"[0-9a-fA-F]{{{count}}}", digits) or int(digits, 16) > 0x10FFFF:
                raise self.wrong(f"An escape \\{character} without {count} hexadecimal digits of a character", position)
            self.at += count
            return charset([(int(digits, 16),) * 2])
        if character == "0":
            octal = re.compile(r"0[0-7]{0,2}").match(self.pattern, self.at - 1)
            assert octal is not None
            self.at = octal.end()
            return single(chr(int(octal[0], 8)))
        if character == "N" and (named := re.compile(r"\{([^}]+)\}").match(self.pattern, self.at)):
            self.at = named.end()
            try:
                return single(unicodedata.lookup(named[1]))
            except (KeyError, TypeError):
                raise self.wrong(f"The unknown character name {named[1]!r}", position) from None
        if character in "pP":
            return self.property(character == "P", position)
        if character.isascii() and character.isalnum():
            raise self.wrong(f"The unknown escape '\\{character}'", position)
        return single(character)

    def property(self, negated: bool, position: int) -> CharSet:
        named = re.compile(r"\{(\^?)(?:gc=|General_Category=)?(\w+)\}|()([A-Z])").match(self.pattern, self.at)
        chars = category(named[2] or named[4]) if named else None
        if named is None or chars is None:
            hint = "Categories of one or two letters are known: \\p{L}, \\p{Lu}, \\p{Nd} …"
            raise self.unsupported("an unknown character property", position, hint)
        self.at = named.end()
        return complement(chars) if negated != bool(named[1]) else chars

    def set(self, flags: Flags, position: int) -> Node:
        negated = self.take("^")
        parts: list[tuple[int, int]] = []
        classes: list[tuple[int, int]] = []  # the case of a character never matters to them
        unclosed = "A set that isn't closed"
        first = True
        while True:
            at = self.at
            if self.at >= len(self.pattern):
                raise self.wrong(unclosed, position)
            if not first and self.take("]"):
                break
            first = False
            low = self.member(flags, unclosed)
            if not self.peek("-") or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
                (classes if _is_class(self.pattern, at) else parts).extend(low)
                continue
            self.at += 1
            high = self.member(flags, unclosed)
            if not (_one(low) and _one(high)) or high[0][0] < low[0][0]:
                raise self.wrong(f"The bad range {self.pattern[at : self.at]!r}", at)
            parts.append((low[0][0], high[0][0]))
        chars = charset([*self.chars(charset(parts), flags).chars, *classes])
        return self.chars(complement(chars) if negated else chars, Flags())

    def member(self, flags: Flags, unclosed: str) -> tuple[tuple[int, int], ...]:
        """One member of a set as ranges; a surrogate is kept, as an end of a range."""
        position = self.at
        character = self.next(unclosed)
        if character != "\\":
            return ((ord(character),) * 2,)
        character = self.next("A lone backslash at the end")
        if character == "b":
            return ((8, 8),)
        if character in "uU":
            surrogate = re.compile(r"(?:u|U0000)([dD][89a-fA-F][0-9a-fA-F]{2})").match(self.pattern, self.at - 1)
            if surrogate:
                self.at = surrogate.end()
                return ((int(surrogate[1], 16),) * 2,)
        if "1" <= character <= "7" and (octal := re.compile(r"[0-3][0-7][0-7]").match(self.pattern, self.at - 1)):
            self.at = octal.end()
            return ((int(octal[0], 8),) * 2,)
        return self.escaped(character, flags, position)


def _is_class(pattern: str, position: int) -> bool:
    return pattern[position] == "\\" and pattern[position + 1 : position + 2] in set("dDwWsS")


def _one(part: tuple[tuple[int, int], ...]) -> bool:
    return len(part) == 1 and part[0][0] == part[0][1]
