"""kind "regex": the output as a whole matches a regular expression, read as Python's `re` reads it.

Drawn for compiling/drawing.py. An automaton of our own where it stays within bounds, else llguidance's.
"""

from __future__ import annotations

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.automaton import automaton
from palmette.runtime.grammar.automaton.dfa import TooLarge
from palmette.runtime.grammar.blueprint import Automata, Blueprint, RuleText
from palmette.runtime.grammar.llg.start import start
from palmette.runtime.grammar.llg.tokenizers import byte_tokenizer
from palmette.runtime.grammar.protocol import GrammarSource, Limits, TooSlow
from palmette.runtime.grammar.regex.lark import lark_source
from palmette.runtime.grammar.regex.parser import parse

_SECONDS = 2.0
"""What our own automaton may take before llguidance is asked."""


def draw_regex(source: GrammarSource, limits: Limits) -> Blueprint:
    """Raises GrammarError naming the position in the pattern."""
    tree = parse(source.text)
    try:
        built = automaton(tree, msgspec.structs.replace(limits, seconds=min(_SECONDS, limits.seconds)))
    except TooLarge as too_large:
        lark = lark_source(tree)
        if lark is None or (limits.quick and isinstance(too_large, TooSlow)):
            raise
        try:
            start(byte_tokenizer(), lark)
        except GrammarError:
            raise too_large from None  # in our words, for what both refuse
        return RuleText(lark=lark)
    if built.empty:
        raise GrammarError(
            f"No text matches the regex {source.text[:200]!r}.",
            hint="Its parts exclude one another: look at its look-aheads and anchors.",
            param="regex",
        )
    return Automata((built,))
