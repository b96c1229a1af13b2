"""kind "choices": the output is one of a list of strings, drawn token by token with the sampling parameters.

Drawn for compiling/drawing.py. The automaton is that of a regex of plain alternatives.
"""

from __future__ import annotations

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.automaton import automaton
from palmette.runtime.grammar.blueprint import Automata
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.regex.charset import single
from palmette.runtime.grammar.regex.syntax import Chars, Choice, Sequence


def draw_choices(source: GrammarSource, limits: Limits) -> Automata:
    """`source.text` is a JSON list of strings. Raises GrammarError for anything else."""
    try:
        choices = msgspec.json.decode(source.text, type=list[str])
    except msgspec.DecodeError as error:
        raise GrammarError(
            f"The choices are no JSON list of strings: {error}.",
            hint='Give a list like ["yes", "no"].',
            param="choices",
        ) from error
    if not any(choices):
        raise GrammarError(
            f"The choices {choices!r} leave nothing to write.", hint="Give at least one string that isn't empty.",
            param="choices",
        )  # fmt: skip
    letters = {character: Chars(single(character)) for character in set().union(*choices)}
    options = tuple(Sequence(tuple(letters[character] for character in choice)) for choice in dict.fromkeys(choices))
    return Automata((automaton(Choice(options), limits),))
