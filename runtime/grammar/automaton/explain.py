"""Where a text leaves an automaton's language, and what could have stood there, for people."""

from __future__ import annotations

from itertools import pairwise

from palmette.runtime.grammar.automaton.automaton import Automaton
from palmette.runtime.grammar.protocol import Explanation
from palmette.runtime.grammar.regex.charset import LAST, CharSet

_SHOWN = 12  # ranges


def explain(automaton: Automaton, text: str) -> Explanation:
    at = automaton.start
    if automaton.empty:
        return Explanation(matches=False, position=0, message="No text matches this grammar.")
    for position, character in enumerate(text):
        after = automaton.walk(at, character.encode(errors="surrogatepass"))
        if after is None:
            possible = describe(automaton.possible(at), may_end=automaton.final(at))
            message = f"{character!r} at position {position} can't stand there; possible: {possible}."
            return Explanation(matches=False, position=position, possible=possible, message=message)
        at = after
    possible = describe(automaton.possible(at), may_end=automaton.final(at))
    if automaton.final(at):
        return Explanation(matches=True, position=len(text), possible=possible)
    message = f"The text is incomplete; possible at position {len(text)}: {possible}."
    return Explanation(matches=False, position=len(text), possible=possible, message=message)


def describe(chars: CharSet, *, may_end: bool) -> str:
    """`'a'-'z', '_' or the end of the text`."""
    if chars and chars[0][0] == 0 and chars[-1][1] == LAST and len(chars) <= _SHOWN:
        gaps = [(before[1] + 1, after[0] - 1) for before, after in pairwise(chars)]
        named = [gap for gap in gaps if gap != (0xD800, 0xDFFF)]
        parts = ["any character" + (f" but {_ranges(named)}" if named else "")]
    else:
        parts = [_ranges(chars)] if chars else []
    if may_end:
        parts.append("the end of the text")
    return " or ".join(parts)


def _ranges(ranges: CharSet | list[tuple[int, int]]) -> str:
    written = [
        repr(chr(first)) if first == last else f"{chr(first)!r}-{chr(last)!r}" for first, last in ranges[:_SHOWN]
    ]
    return ", ".join(written) + (", …" if len(ranges) > _SHOWN else "")
