"""kind "regex": the output as a whole matches a regular expression, read as Python's `re` reads it.

A Builder for compile.py.
"""

from __future__ import annotations

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton import automaton
from palmette.runtime.grammar.automaton_grammar import AutomatonGrammar
from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.protocol import Grammar, GrammarSource, Limits, TokenSpace
from palmette.runtime.grammar.regex_parser import parse


def build_regex(source: GrammarSource, space: TokenSpace, limits: Limits) -> Grammar:
    """Raises GrammarError naming the position in the pattern."""
    built = automaton(parse(source.text), limits)
    if built.empty:
        raise GrammarError(
            f"No text matches the regex {source.text[:200]!r}.",
            hint="Its parts exclude one another: look at its look-aheads and anchors.",
            param="regex",
        )
    return AutomatonGrammar(source, built, space, masks_of(space))
