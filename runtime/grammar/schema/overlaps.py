"""Which patterns of property names can match one name together: an object's names are told apart by that.

Patterns are compared in pairs, so that many that exclude one another cost little. Called by branch.py.
"""

from __future__ import annotations

from collections.abc import Callable

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import ecma, json_strings
from palmette.runtime.grammar.schema.json_strings import Terminal

MAX_SETS = 256


class Overlaps:
    """Remembers what was compared. `is_empty` says whether a terminal matches nothing."""

    def __init__(self, is_empty: Callable[[Terminal], bool]) -> None:
        self._is_empty = is_empty
        self._found: dict[frozenset[str], bool] = {}

    def sets_of(self, patterns: list[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """(inside, others): every set of patterns that may match a name together, and those that could besides.

        Raises GrammarError for too many.
        """
        found: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), tuple(patterns))]
        waiting: list[tuple[tuple[str, ...], list[str]]] = [((), patterns)]
        while waiting:
            inside, later = waiting.pop()
            for index, pattern in enumerate(later):
                if not all(self._overlap(pattern, other) for other in inside):
                    continue
                chosen = (*inside, pattern)
                others = [each for each in patterns if each not in chosen]
                found.append(
                    (chosen, tuple(each for each in others if all(self._overlap(each, one) for one in chosen)))
                )
                waiting.append((chosen, later[index + 1 :]))
                if len(found) > MAX_SETS:
                    raise GrammarError(
                        f"The {len(patterns)} patternProperties of an object overlap in more than {MAX_SETS} ways.",
                        hint="Use fewer patterns in one object, or such that exclude one another.",
                        param="json_schema",
                    )
        return found

    def _overlap(self, one: str, other: str) -> bool:
        """Whether some text has both patterns in it."""
        pair = frozenset((one, other))
        found = self._found.get(pair)
        if found is None:
            terms = [json_strings.pattern(ecma.parse(pattern)) for pattern in (one, other)]
            found = self._found[pair] = not self._is_empty(json_strings.intersection(terms))
        return found
