"""EBNF and GBNF (rules written `name ::= …`) and llguidance's Lark, as grammars.

A grammar without recursion becomes one terminal. One with recursion becomes rules over single characters: slower, but
exact for every grammar, since a lexer's longest match can't cut it wrongly. Lark keeps the terminals that its author
wrote, with llguidance's longest match.
"""

from __future__ import annotations

import re

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import RuleText
from palmette.runtime.grammar.llg.depth import nesting
from palmette.runtime.grammar.llg.rule_reader import Characters, Either, Part, Reference, Repeated, RuleReader, Together
from palmette.runtime.grammar.protocol import GrammarSource, Limits, TooSlow
from palmette.runtime.grammar.schema.charsets import CharSet

MAX_TERMINAL = 200_000  # characters of the one terminal of a grammar without recursion
QUICK_PARTS = 50_000  # written out, that llguidance builds in some hundredths of a second
MAX_TERMINAL_NESTING = 200  # groups inside one another there; llguidance's regexes have 250 at most


def lark_of(text: str, kind: str) -> str:
    """A `::=` grammar in llguidance's Lark. Raises GrammarError with line and column."""
    reader = RuleReader(text, kind)
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
    lark = lark_of(source.text, source.kind)
    if limits.quick and _written_out(lark) > QUICK_PARTS:
        raise TooSlow(f"The {source.kind} repeats much.", param=source.kind)
    return RuleText(lark=lark)


def _written_out(lark: str) -> int:
    """How many characters and names there are once every repetition of a group is written out."""
    open_groups = [0]
    for found in _PARTS.finditer(lark):
        if found[0] == "(":
            open_groups.append(0)
        elif found[0][0] == ")":
            inside = open_groups.pop()
            open_groups[-1] += inside * max(1, int(found["least"] or 1), int(found["most"] or 1))
        else:
            open_groups[-1] += 1
    return open_groups[0]


_PARTS = re.compile(r"\[[^\]]*\]|\(|\)(?:\{(?P<least>\d+),?(?P<most>\d*)\})?|\br\d+\b")  # of rules written here
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
