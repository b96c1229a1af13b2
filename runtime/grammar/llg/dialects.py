"""EBNF and GBNF (rules written `name ::= …`) and llguidance's Lark, as grammars.

A grammar without recursion becomes one terminal. One with recursion becomes rules over single characters: slower, but
exact for every grammar, since a lexer's longest match can't cut it wrongly. Lark keeps the terminals that its author
wrote, with llguidance's longest match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import RuleText
from palmette.runtime.grammar.llg.depth import nesting
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.schema import charsets
from palmette.runtime.grammar.schema.charsets import CharSet

MAX_NESTING = 100
MAX_REPEAT = 10_000
MAX_TERMINAL = 200_000  # characters of the one terminal of a grammar without recursion
MAX_TERMINAL_NESTING = 200  # groups inside one another there; llguidance's regexes have 250 at most

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


class _Reader:
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


def lark_of(text: str, kind: str) -> str:
    """A `::=` grammar in llguidance's Lark. Raises GrammarError with line and column."""
    reader = _Reader(text, kind)
    rules = reader.rules()
    if "root" not in rules:
        found = f"its rules are {', '.join(rules)}" if rules else "it has no rules"
        raise GrammarError(
            f"The {kind} grammar has no rule root: {found}."[:300], hint="Call the first rule root.", param=kind
        )
    for name, part in rules.items():
        for other in _references(part):
            if other not in rules:
                raise GrammarError(
                    f"The rule {name!r} of the {kind} grammar uses {other!r}, which isn't there.",
                    hint="Define the rule, or put quotes around what is meant as text.",
                    param=kind,
                )
    if "root" not in _productive(rules):
        raise GrammarError(
            f"No text matches the {kind} grammar: its rule root never comes to an end.",
            hint="Give the recursion a way out.",
            param=kind,
        )
    order = _without_recursion(rules)
    if order is not None:
        regexes: dict[str, str] = {}
        for name in order:
            if sum(len(regexes[other]) for other in _references(rules[name])) > MAX_TERMINAL:
                break
            regexes[name] = _regex(rules[name], regexes)
            if len(regexes[name]) > MAX_TERMINAL or nesting(regexes[name]) > MAX_TERMINAL_NESTING:
                break
        else:
            return (
                f'start: ALL | ""\nALL: /{regexes["root"]}/'
                if _nullable(rules["root"], rules)
                else (f"start: ALL\nALL: /{regexes['root']}/")
            )
    names = {name: f"r{index}" for index, name in enumerate(rules)}
    lines = [f"{names[name]}: {_rule(part, names)}" for name, part in rules.items()]
    return "\n".join([f"start: {names['root']}", *lines])


def _references(part: Part) -> list[str]:
    match part:
        case Reference(name):
            return [name]
        case Together(items):
            return [name for item in items for name in _references(item)]
        case Either(options):
            return [name for option in options for name in _references(option)]
        case Repeated(item):
            return _references(item)
    return []


def _productive(rules: dict[str, Part]) -> set[str]:
    """The rules that some text comes out of."""
    ends: set[str] = set()
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, part in rules.items():
        for other in _references(part):
            users[other].add(name)

    def can_end(part: Part) -> bool:
        match part:
            case Reference(name):
                return name in ends
            case Together(items):
                return all(map(can_end, items))
            case Either(options):
                return any(map(can_end, options))
            case Repeated(item, least):
                return least == 0 or can_end(item)
            case Characters(chars):
                return bool(chars)

    waiting = dict.fromkeys(rules)  # to be looked at: again only once something that they use can end
    while waiting:
        name, _ = waiting.popitem()
        if name not in ends and can_end(rules[name]):
            ends.add(name)
            waiting.update(dict.fromkeys(users[name]))
    return ends


def _without_recursion(rules: dict[str, Part]) -> list[str] | None:
    """The rules that root needs, each after those it uses; None if one needs itself."""
    order: dict[str, None] = {}
    open_names: list[tuple[str, list[str]]] = [("root", _references(rules["root"]))]
    under_way = {"root"}
    while open_names:
        name, needed = open_names[-1]
        if not needed:
            open_names.pop()
            under_way.discard(name)
            order[name] = None
            continue
        other = needed.pop()
        if other in under_way:
            return None
        if other not in order:
            under_way.add(other)
            open_names.append((other, _references(rules[other])))
    return list(order)


def _nullable(part: Part, rules: dict[str, Part]) -> bool:
    """Whether the empty text matches; for rules without recursion."""
    match part:
        case Reference(name):
            return _nullable(rules[name], rules)
        case Together(items):
            return all(_nullable(item, rules) for item in items)
        case Either(options):
            return any(_nullable(option, rules) for option in options)
        case Repeated(item, least):
            return least == 0 or _nullable(item, rules)
    return False


def _class(chars: CharSet) -> str:
    ranges = "".join(f"\\x{{{low:x}}}" if low == high else f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in chars)
    return f"[{ranges}]" if ranges else "[^\\x{0}-\\x{10FFFF}]"


def _regex(part: Part, known: dict[str, str]) -> str:
    match part:
        case Characters(chars):
            return _class(chars)
        case Reference(name):
            return f"(?:{known[name]})"
        case Together(items):
            return "".join(_regex(item, known) for item in items)
        case Either(options):
            return f"(?:{'|'.join(_regex(option, known) for option in options)})"
        case Repeated(item, least, most):
            inner = _regex(item, known)
            return f"(?:{inner}){_counts(least, most)}" if inner else ""


def _rule(part: Part, names: dict[str, str]) -> str:
    match part:
        case Characters(chars):
            return f"/{_class(chars)}/"
        case Reference(name):
            return names[name]
        case Together(items):
            return f"({' '.join(_rule(item, names) for item in items)})" if items else '""'
        case Either(options):
            return f"({' | '.join(_rule(option, names) for option in options)})"
        case Repeated(item, least, most):
            return f"({_rule(item, names)}){_counts(least, most)}" if most != 0 else '""'


def _counts(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    return short or f"{{{least},{'' if most is None else most}}}"


def draw_rules(source: GrammarSource, limits: Limits) -> RuleText:
    """The kinds "ebnf" and "gbnf". Lark is known by its rule start and by having no `::=`."""
    if source.kind == "ebnf" and _START.search(source.text) and "::=" not in _LARK_PARTS.sub(" ", source.text):
        return draw_lark(source, limits)
    _no_options(source)
    return RuleText(lark=lark_of(source.text, source.kind))


_START = re.compile(r"(?m)^\s*\??start\b")
_LARK_PARTS = re.compile(r'"(?:[^"\\\n]|\\.)*"i?|/(?:[^/\\\n]|\\.)+/[a-z]*|//[^\n]*|#[^\n]*')


def draw_lark(source: GrammarSource, limits: Limits) -> RuleText:
    """The kind "lark", and "ebnf" that is written in it."""
    _no_options(source)
    bare = _LARK_PARTS.sub(" ", source.text)
    for found, why in (("%json", "its schema would not be checked; use json_schema or structural_tag"),
                       ("<", "special tokens can't be part of a grammar")):  # fmt: skip
        if found in bare:
            raise GrammarError(f"The Lark grammar uses {found!r}: {why}.", hint="Leave it out.", param=source.kind)
    if not _START.search(bare):
        raise GrammarError("The Lark grammar has no rule start.", hint="Call the first rule start.", param=source.kind)
    return RuleText(lark=source.text)


def _no_options(source: GrammarSource) -> None:
    if source.options:
        raise GrammarError(
            f"The kind {source.kind!r} has no option {min(source.options)!r}.",
            hint="Leave the options out.",
            param="options",
        )
