"""A second reading of a regular expression, by interegular, which shares no code with our front end: whether the
automata of both take the same texts.

For `palmette grammar regex`, and the judge of tests. interegular reads its classes (`\\d`, `\\w`) as ASCII, so both do
here. It takes no anchors, and its automata can be large: then there is no opinion, but why.
"""

from __future__ import annotations

from typing import Any

import msgspec
from interegular import InvalidSyntax, Unsupported, parse_pattern
from interegular.fsm import FSM, anything_else

from palmette.runtime.grammar.automaton.automaton import Automaton, State, automaton
from palmette.runtime.grammar.protocol import Limits
from palmette.runtime.grammar.regex.parser import parse

MAX_STATES = 300


class SecondOpinion(msgspec.Struct, frozen=True):
    """`agrees`: None where there is none, `why`. `text`: one that only one of the two takes."""

    agrees: bool | None
    why: str = ""
    text: str | None = None


def second_opinion(pattern: str) -> SecondOpinion:
    """Raises GrammarError for a pattern that our own front end refuses."""
    mine = automaton(parse("(?a)" + pattern), Limits())
    if mine.states > MAX_STATES:
        return SecondOpinion(None, f"its automaton has {mine.states:,} states; {MAX_STATES} are compared")
    try:
        theirs = parse_pattern(pattern).to_fsm()
    except (InvalidSyntax, Unsupported, NotImplementedError, ValueError) as error:
        return SecondOpinion(None, f"interegular doesn't read it: {error}"[:200])
    text = difference(mine, theirs)
    return SecondOpinion(text is None, text=text)


def difference(mine: Automaton, theirs: FSM) -> str | None:
    """A text that one takes and the other doesn't; None where there is none. Walks both together."""
    letters = [symbol for symbol in theirs.alphabet if symbol is not anything_else]
    other = next(chr(code) for code in range(0x4E00, 0x9FFF) if chr(code) not in letters)
    # characters that either of them tells apart
    tried = [*letters, other, *(chr(first) for first, _ in mine.alphabet.intervals if 0 < first < 0xD800)]
    start = (mine.start, theirs.initial)
    seen: dict[tuple[State | None, Any], str] = {start: ""}
    queue: list[tuple[State | None, Any]] = [start]
    for left, right in queue:  # grows as it is read
        text = seen[left, right]
        if (left is not None and mine.final(left)) != (right in theirs.finals):
            return text
        for character in tried:
            symbol = character if character in letters else anything_else
            further = theirs.map.get(right, {}).get(theirs.alphabet[symbol]) if right is not None else None
            after = (mine.walk(left, character.encode()) if left is not None else None, further)
            if after not in seen and after != (None, None):
                seen[after] = text + character
                queue.append(after)
    return None
