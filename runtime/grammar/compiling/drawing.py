"""From a source to a Blueprint, one function a kind; and from a Blueprint to a Grammar over a vocabulary.

Drawing needs no vocabulary but its special tokens, so it can happen in another process. Called by compile.py and by the
child processes of contained.py.
"""

from __future__ import annotations

from collections.abc import Callable

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.grammar import AutomatonGrammar
from palmette.runtime.grammar.blueprint import Automata, Blueprint, Foreign, RuleText
from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.choices import draw_choices
from palmette.runtime.grammar.llg.dialects import draw_lark, draw_rules
from palmette.runtime.grammar.llg.grammar import LlgGrammar
from palmette.runtime.grammar.protocol import Grammar, GrammarSource, Limits, TokenSpace, TooSlow
from palmette.runtime.grammar.regex.compile import draw_regex
from palmette.runtime.grammar.regex.stop_pattern import draw_stop
from palmette.runtime.grammar.schema.compile import SchemaGrammar, build_xgrammar, draw_schema, options_of
from palmette.runtime.grammar.tag_marks import Marks
from palmette.runtime.grammar.tags import draw_tags

Drawer = Callable[[GrammarSource, Marks, Limits], Blueprint]

QUICK_SECONDS = 0.05  # of CPU time, for what is drawn in the engine's own process
QUICK_BYTES = 16_384  # of a source there; larger ones aren't begun
QUICK_RULES = 131_072  # bytes of rules that llguidance builds in some hundredths of a second

DRAWN: dict[str, Drawer] = {
    "regex": lambda source, _, limits: draw_regex(source, limits),
    "choices": lambda source, _, limits: draw_choices(source, limits),
    "json_schema": lambda source, _, limits: draw_schema(source, limits),
    "ebnf": lambda source, _, limits: draw_rules(source, limits),
    "gbnf": lambda source, _, limits: draw_rules(source, limits),
    "lark": lambda source, _, limits: draw_lark(source, limits),
    "structural_tag": draw_tags,
    "stop_regex": lambda source, _, limits: draw_stop(source, limits),
}


def draw(source: GrammarSource, marks: Marks, limits: Limits) -> Blueprint:
    """Raises GrammarError; TooSlow where `limits.quick` and it takes long, or may."""
    if limits.quick and len(source.text) > QUICK_BYTES:
        raise TooSlow(f"The {source.kind} is large.", param=source.kind)
    if is_foreign(source):
        if limits.quick:
            raise TooSlow(f"The {source.kind} is another library's, which knows no bounds.", param=source.kind)
        return Foreign()
    drawn = DRAWN[source.kind](source, marks, limits)
    if isinstance(drawn, RuleText):
        size = len(drawn.lark)
        if limits.quick and size > QUICK_RULES:
            raise TooSlow(f"The {source.kind} comes to many rules.", param=source.kind)
        if size > limits.rules_bytes:
            raise GrammarError(
                f"The {source.kind} comes to {size:,} bytes of rules; at most {limits.rules_bytes:,}.",
                hint="Make it smaller, or its parts fewer.",
                param=source.kind,
            )
    return drawn


def is_foreign(source: GrammarSource) -> bool:
    """Whether another library builds it, from the source itself. Raises GrammarError for options that are wrong."""
    return source.kind == "json_schema" and options_of(source).backend != "llguidance"


def finish(blueprint: Blueprint, source: GrammarSource, space: TokenSpace) -> Grammar:
    """The grammar over a vocabulary. Raises GrammarError where llguidance refuses the rules."""
    match blueprint:
        case Automata((automaton,)):
            return AutomatonGrammar(source, automaton, space, masks_of(space))
        case RuleText():
            make = SchemaGrammar if source.kind == "json_schema" else LlgGrammar
            return make(source, space, blueprint)
        case Foreign():
            return build_xgrammar(source, space)
    raise AssertionError(f"a {source.kind} is no grammar")


def marks_of(space: TokenSpace) -> Marks:
    return Marks(space.vocabulary.special_pieces, space.vocabulary.eos_ids)
