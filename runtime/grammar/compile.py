"""From a grammar's source to a Grammar: one builder a kind.

Called by the engine's compiler and by people (`palmette.grammar`).
"""

from __future__ import annotations

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.protocol import Builder, Grammar, GrammarSource, Limits, TokenSpace, check_size

BUILDERS: dict[str, Builder] = {}
"""kind → what compiles it. A new kind is one line here."""


def build(source: GrammarSource, space: TokenSpace, limits: Limits) -> Grammar:
    """Raises GrammarError, naming the position in the source."""
    builder = BUILDERS.get(source.kind)
    if builder is None:
        raise GrammarError(
            f"{source.kind!r} is no kind of grammar.", hint=f"Kinds: {', '.join(sorted(BUILDERS))}.", param="kind"
        )
    check_size(source, limits)
    return builder(source, space, limits)
