"""Resolves `^` and `\\A`: dropped where the text starts, never matching after a character. Called by the parser."""

from __future__ import annotations

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.regex.syntax import (
    EMPTY,
    NEVER,
    Chars,
    Choice,
    Look,
    Node,
    Repeat,
    Sequence,
    Start,
    consumes_nothing,
    shortest,
)


def resolve_start(pattern: str, node: Node) -> Node:
    """`node` without Start. Raises GrammarError where it depends on a part that may be empty (`a*^b`)."""
    return node if "^" not in pattern and r"\A" not in pattern else _resolve(pattern, node, at_start=True)


def _resolve(pattern: str, node: Node, at_start: bool | None) -> Node:
    """`at_start`: True at the start of the text for sure, False never, None where it depends."""
    match node:
        case Start(position):
            if at_start is None:
                raise GrammarError(
                    f"'^' at position {position} of the regex stands behind a part that may be empty.",
                    hint="Write '^' at the start of the pattern or of an alternative.",
                    param="regex",
                )
            return EMPTY if at_start else NEVER
        case Sequence(items):
            resolved = []
            for item in items:
                resolved.append(_resolve(pattern, item, at_start))
                if at_start is not False and not consumes_nothing(item):
                    at_start = False if shortest(item) else None
            return Sequence(tuple(resolved))
        case Choice(options):
            return Choice(tuple(_resolve(pattern, option, at_start) for option in options))
        case Repeat(item, low, high):
            again = high is None or high > 1
            inside = None if at_start and again and not consumes_nothing(item) else at_start
            return Repeat(_resolve(pattern, item, inside), low, high)
        case Look(item, negative, whole, position):
            return Look(_resolve(pattern, item, at_start), negative, whole, position)
        case Chars():
            return node
