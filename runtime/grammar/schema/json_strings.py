"""Languages of JSON strings as terminals of llguidance's Lark dialect.

Every character has one written form (that of json.dumps without ASCII escapes): so a terminal's complement is the
complement of its strings, and lengths count code points. A terminal here stands between the quotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import charsets, ecma
from palmette.runtime.grammar.schema.charsets import CharSet
from palmette.runtime.grammar.schema.found import finds

MAX_ALTERNATIVES = 200  # of a pattern whose anchors are spread over its branches

SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = charsets.complement(charsets.charset([(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)]))

Terminal = str
"""An expression of Lark terminals, in brackets or atomic."""


def written(text: str) -> str:
    """`text` as it is written between the quotes."""
    return "".join(SHORT_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text)


def literal(text: str) -> Terminal:
    """A terminal that is exactly `text` (already as written)."""
    return f"/{_escaped(text)}/" if text else '""'


def _escaped(text: str) -> str:
    return "".join(c if (c.isascii() and c.isalnum()) or c in " _,:\"'" else f"\\x{{{ord(c):x}}}" for c in text)


def _range(low: int, high: int) -> str:
    return f"\\x{{{low:x}}}" if low == high else f"\\x{{{low:x}}}-\\x{{{high:x}}}"


@lru_cache(maxsize=4096)
def _character(chars: CharSet) -> str:
    """The regex of one character of the set, as written."""
    plain = charsets.intersection(chars, _PLAIN)
    escaped = [chr(code) for code in (*range(0x20), 0x22, 0x5C) if any(low <= code <= high for low, high in chars)]
    parts = []
    if plain == _PLAIN:
        parts.append(r'[^"\\\x00-\x1F]')
    elif plain:
        parts.append("[" + "".join(_range(*part) for part in plain) + "]")
    if len(escaped) == 34:
        parts.append(r'\\(?:["\\bfnrt]|u00(?:0[0-7be]|0f|1[0-9a-f]))')
    else:
        parts += [_escaped(written(character)) for character in escaped]
    if not parts:
        return NOTHING[1:-1]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


NOTHING = r"/[^\x{0}-\x{10FFFF}]/"
ANY_CHARACTER = _character(charsets.ANY)
ANY_TEXT = f"/{ANY_CHARACTER}*/"


def length(least: int, most: int | None) -> Terminal:
    """Strings of so many code points."""
    return f"/{ANY_CHARACTER}{_counts(least, most)}/"


def _counts(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else most}}}"


def pattern(node: ecma.Node) -> Terminal:
    """The strings in which the pattern is found."""
    return _union([_found(branch) for branch in _branches(node)])


def complement(terminal: Terminal) -> Terminal:
    return f"({ANY_TEXT} & ~{terminal})"


def intersection(terminals: Sequence[Terminal]) -> Terminal:
    return terminals[0] if len(terminals) == 1 else f"({' & '.join(terminals)})"


def one_of(texts: Iterable[str]) -> Terminal:
    """Exactly these strings (not yet as written)."""
    return f"/(?:{'|'.join(_escaped(written(text)) for text in texts)})/"


def _union(terminals: Sequence[Terminal]) -> Terminal:
    return terminals[0] if len(terminals) == 1 else f"({' | '.join(terminals)})"


# Patterns: found somewhere in the string, unless anchored


def _branches(node: ecma.Node) -> list[tuple[ecma.Node, ...]]:
    """The alternatives of a pattern as flat sequences; groups that hold an assertion are multiplied out."""
    if isinstance(node, ecma.Choice):
        options = [branch for option in node.options for branch in _branches(option)]
    elif isinstance(node, ecma.Sequence):
        options = [()]
        for item in node.items:
            inner = _branches(item) if _asserts(item) else [(item,)]
            options = [(*head, *tail) for head in options for tail in inner]
            _check_count(len(options))
    elif isinstance(node, ecma.Repeat) and _asserts(node):
        if (node.least, node.most) != (0, 1):
            raise GrammarError("A pattern repeats an anchor or a look-ahead.", hint="Move it out of the repetition.")
        options = [(), *_branches(node.item)]
    else:
        options = [(node,)]
    _check_count(len(options))
    return options


def _check_count(count: int) -> None:
    if count > MAX_ALTERNATIVES:
        raise GrammarError(
            f"A pattern has more than {MAX_ALTERNATIVES} alternatives with anchors.", hint="Factor the anchors out."
        )


def _asserts(node: ecma.Node) -> bool:
    match node:
        case ecma.Anchor() | ecma.LookAhead() | ecma.LookBehind():
            return True
        case ecma.Sequence(items):
            return any(_asserts(item) for item in items)
        case ecma.Choice(options):
            return any(_asserts(option) for option in options)
        case ecma.Repeat(item):
            return _asserts(item)
    return False


def _found(branch: tuple[ecma.Node, ...]) -> Terminal:
    starts = [index for index, item in enumerate(branch) if item == ecma.Anchor(start=True)]
    if not starts:
        return _anchored(branch, before=f"{ANY_CHARACTER}*")
    if any(not _may_be_empty(item) for item in branch[: starts[-1]]):
        return NOTHING  # something before the start
    looks = tuple(item for item in branch[: starts[-1]] if isinstance(item, ecma.LookAhead))
    if not all(_holds_at_the_start(item) for item in branch[: starts[-1]]):
        return NOTHING
    return _anchored(looks + branch[starts[-1] + 1 :])


def _may_be_empty(node: ecma.Node) -> bool:
    return isinstance(node, ecma.Anchor | ecma.LookAhead | ecma.LookBehind) or (
        isinstance(node, ecma.Repeat) and node.least == 0
    )


def _holds_at_the_start(node: ecma.Node) -> bool:
    return not isinstance(node, ecma.LookBehind) or finds(node, "")


def _holds_at_the_end(node: ecma.Node) -> bool:
    if isinstance(node, ecma.LookAhead):
        return finds(node, "")
    return _may_be_empty(node)


def _anchored(items: tuple[ecma.Node, ...], before: str = "", *, starts: bool = True) -> Terminal:
    """What follows a known position, to the end of the string. `starts`: that position is the string's start.

    `before`: a regex of what comes first.
    """
    behind: list[Terminal] = []  # what is certain of the text so far
    regex, least = before, 0
    for index, item in enumerate(items):
        match item:
            case ecma.LookAhead():
                first = starts and not regex and not behind
                ahead = _union([_anchored(branch, starts=first) for branch in _branches(item.item)])
                ahead = complement(ahead) if item.negative else ahead
                rest = _anchored(items[index + 1 :], starts=first)
                return _joined([*behind, *_terminals(regex), intersection([ahead, rest])])
            case ecma.LookBehind():
                if not starts and not _reaches(item.item, least):
                    raise GrammarError(
                        "A pattern has a look-behind that may reach over a look-ahead.",
                        hint="Put the look-behind first, or look behind at fewer characters.",
                    )
                behind = [_looked_behind(item, _joined([*behind, *_terminals(regex)]))]
                regex = ""
            case ecma.Anchor(start=True):
                if not starts:
                    raise GrammarError(
                        "A pattern has ^ in a look-ahead that isn't at its start.", hint="Leave the ^ out there."
                    )
                if least or not all(map(_holds_at_the_start, items[:index])):
                    return NOTHING
                behind, regex = [], ""
            case ecma.Anchor():
                later = items[index + 1 :]
                if not all(_holds_at_the_end(each) for each in later):
                    return NOTHING
                if any(isinstance(each, ecma.LookBehind) for each in later):
                    looks = tuple(each for each in later if isinstance(each, ecma.LookBehind))
                    return _anchored((*items[:index], *looks, item), before, starts=starts)
                return _joined([*behind, *_terminals(regex)])
            case _:
                regex += _regex(item)
                least += _shortest(item)
    return _joined([*behind, f"/{regex}{ANY_CHARACTER}*/"])


def _terminals(regex: str) -> list[Terminal]:
    return [f"/{regex}/"] if regex else []


def _joined(parts: list[Terminal]) -> Terminal:
    if not parts:
        return '""'
    return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"


def _looked_behind(look: ecma.LookBehind, text: Terminal) -> Terminal:
    """The texts of `text` that end as `look` wants."""
    ends: list[Terminal] = []
    for branch in _branches(look.item):
        rooted = branch[:1] == (ecma.Anchor(start=True),)
        if any(_asserts(item) for item in branch[rooted:]):
            raise GrammarError("A pattern's look-behind looks on.", hint="Look at characters only in it.")
        regex = "".join(_regex(item) for item in branch[rooted:])
        ends.append(_joined(_terminals(regex if rooted else f"{ANY_CHARACTER}*{regex}")))
    end = _union(ends)
    return intersection([text, complement(end) if look.negative else end])


def _reaches(node: ecma.Node, count: int) -> bool:
    """What is looked at behind lies within so many characters."""
    match node:
        case ecma.Chars():
            return count >= 1
        case ecma.Sequence(items) if all(isinstance(item, ecma.Chars) for item in items):
            return count >= len(items)
        case ecma.Choice(options):
            return all(_reaches(option, count) for option in options)
    return False


def _shortest(node: ecma.Node) -> int:
    """Characters of the shortest text."""
    match node:
        case ecma.Chars():
            return 1
        case ecma.Sequence(items):
            return sum(map(_shortest, items))
        case ecma.Choice(options):
            return min(map(_shortest, options))
        case ecma.Repeat(item, least):
            return least * _shortest(item)
    return 0


def _regex(node: ecma.Node) -> str:
    match node:
        case ecma.Chars(chars):
            return _character(chars)
        case ecma.Sequence(items):
            return "".join(_regex(item) for item in items)
        case ecma.Choice(options):
            return f"(?:{'|'.join(_regex(option) for option in options)})"
        case ecma.Repeat(item, least, most):
            inner = _regex(item)
            return f"(?:{inner}){_counts(least, most)}" if inner else ""
    raise AssertionError(node)
