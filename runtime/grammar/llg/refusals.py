"""What llguidance refuses, in our own words: what is wrong, where where that is known, and what to do.

A source that people wrote for llguidance (kind "lark") keeps its line and column; rules that were made here have none
that anybody could look up. Called by start.py and matcher.py.
"""

from __future__ import annotations

import re

from palmette.runtime.errors import GrammarError

MAX_ROW_ITEMS = 10_000
MAX_GRAMMAR = 2_000_000  # symbols

_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_FEWER = "Make it smaller: fewer alternatives (anyOf, enum, optional properties) at one place."
_SIMPLER = "Make its patterns simpler: lower counts, fewer of them at one place, no long text that is denied."
_LIMITS: tuple[tuple[str, str, str], ...] = (
    ("items; max is", f"has more than {MAX_ROW_ITEMS:,} ways to go on at one place", _FEWER),
    ("number of symbols", f"has more than {MAX_GRAMMAR:,} symbols", _FEWER),
    ("too many expressions", "has patterns that take too many steps to tell apart", _SIMPLER),
    ("fuel", "has patterns that take too many steps to tell apart", _SIMPLER),
    ("lexer states", "has patterns that come to too many states", _SIMPLER),
    ("too many states", "has patterns that come to too many states", _SIMPLER),
    ("too big", "is too large", _FEWER),
    ("too complex", "is too complex", _FEWER),
    ("NoExtension", "describes no text", "Its parts exclude one another, or never come to an end."),
    ("Empty grammar", "is empty", "Write a rule start."),
    ("no start rule", "has no rule start", "Call the first rule start."),
)
_FAULTS: tuple[tuple[str, str], ...] = (
    (r'unknown name: "(.*?)"', "{0!r} is used, which isn't there"),
    (r'duplicate (?:rule|token): "(.*?)"', "{0!r} is there twice"),
    (r'circular reference in token "(.*?)"', "the terminal {0!r} needs itself"),
    (r"Unknown common regex: ([\w.]+)", "{0!r} can't be imported"),
    (r"range end must be >= start, got \((\d+), (\d+)\)", "a repetition from {0} to {1}"),
    (r"error parsing string", "a text with a wrong escape"),
    (r"lexer error", "a character that begins nothing"),
    (r"Expected token '(.+?)', found '(.+?)'", "{1!r} stands where {0!r} is needed"),
    (r"look-?arounds?", "a pattern looks at what is around it (look-ahead, look-behind, \\b)"),
    (r"backreferences", "a pattern with a back-reference"),
    (r"error: ([^\n]+)", "a pattern that can't be read: {0}"),
    (r"invalid regex", "a pattern that can't be read"),
    (r"Expected (\w+)", "a {0} is missing"),
)


def refusal(message: str, kind: str) -> GrammarError:
    """`message`: llguidance's. `kind`: of the source."""
    for sign, problem, hint in _LIMITS:
        if sign in message:
            return GrammarError(f"The {kind} {problem}.", hint=hint, param=kind)
    place = _PLACE.match(message)
    if place is None or kind not in ("lark", "ebnf"):
        told = _told(message[place.end() :] if place else message)
        return GrammarError(
            f"The {kind} can't be followed token by token: {told}.", hint="Write it otherwise.", param=kind
        )
    return GrammarError(
        f"The {kind} can't be read at line {place[1]}, column {place[2]}: {_told(message[place.end() :])}.",
        hint="Rules are written `name: parts`, terminals in capitals as `NAME: /pattern/`.",
        param=kind,
    )


def _told(message: str) -> str:
    for sign, words in _FAULTS:
        found = re.search(sign, message)
        if found is not None:
            return words.format(*(group.encode().decode("unicode_escape") for group in found.groups()))
    return message.partition("\n")[0].strip()[:200] or "it is refused without a reason"
