"""A pattern's tree as a regex of llguidance, which makes states only as an output meets them.

For patterns whose automaton would be too large. Every set is written out in code points, so that it means exactly what
it means to the automaton. Called by compile.py.
"""

from __future__ import annotations

from palmette.runtime.grammar.regex.syntax import NEVER, Chars, Choice, Look, Node, Repeat, Sequence, Start


def lark_source(node: Node) -> str | None:
    """A Lark grammar of the same language; None for look-ahead, which llguidance doesn't know."""
    if _looks(node):
        return None
    pruned = _without_never(node)
    return None if pruned == NEVER else f"start: /{_written(pruned)}/"


def _written(node: Node) -> str:
    match node:
        case Chars(chars):
            if len(chars) == 1 and chars[0][0] == chars[0][1]:
                return _code(chars[0][0])
            return "[" + "".join(f"{_code(first)}-{_code(last)}" for first, last in chars) + "]"
        case Sequence(items):
            return "".join(map(_written, items))
        case Choice(options):
            return "(" + "|".join(map(_written, options)) + ")"
        case Repeat(item, low, high):
            return f"({_written(item)}){{{low},{'' if high is None else high}}}"
        case Look() | Start():
            raise AssertionError("refused before")


def _code(character: int) -> str:
    return f"\\x{{{character:x}}}"


def _looks(node: Node) -> bool:
    match node:
        case Look() | Start():
            return True
        case Sequence(parts) | Choice(parts):
            return any(map(_looks, parts))
        case Repeat(item):
            return _looks(item)
        case Chars():
            return False


def _without_never(node: Node) -> Node:
    """Without parts that match nothing, which llguidance has no way to write; NEVER if that is all of it."""
    match node:
        case Chars(chars):
            return node if chars else NEVER
        case Sequence(items):
            kept = tuple(map(_without_never, items))
            return NEVER if NEVER in kept else Sequence(kept)
        case Choice(options):
            return Choice(tuple(option for option in map(_without_never, options) if option != NEVER))
        case Repeat(item, low, high):
            inner = _without_never(item)
            if inner == NEVER:
                return NEVER if low else Sequence(())
            return Repeat(inner, low, high)
        case Look() | Start():
            return node
