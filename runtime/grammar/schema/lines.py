"""Rules and terminals of llguidance's Lark dialect while they are written: named, counted, each terminal once.

Called by those who write the rules of a schema; knows no schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema.json_strings import Terminal
from palmette.runtime.grammar.schema.shapes import Claim, Goal

MAX_RULES = 60_000


class Lines:
    """`prefix`: of all names. `check_time` is asked before each rule."""

    def __init__(self, prefix: str, check_time: Callable[[], None]) -> None:
        self._prefix = prefix
        self._check_time = check_time
        self._names: dict[frozenset[Claim], str] = {}
        self._terminals: dict[Terminal, str] = {}
        self._rules: list[str] = []

    def all(self) -> list[str]:
        return [*self._rules, *(f"{name}: {body}" for body, name in self._terminals.items())]

    def name(self, goal: Goal) -> str:
        """Of the goal's rule."""
        return self._names.setdefault(goal.key, f"{self._prefix}{len(self._names)}")

    def fresh(self, kind: str) -> str:
        """The name of one more rule."""
        return f"{self._prefix}{kind}_{len(self._rules)}_{len(self._names)}"

    def rule(self, name: str, alternatives: Iterable[str]) -> None:
        """Raises GrammarError beyond MAX_RULES."""
        self._check_time()
        if len(self._rules) > MAX_RULES:
            raise GrammarError(
                f"The schema comes to more than {MAX_RULES:,} rules.", hint="Make it smaller.", param="json_schema"
            )
        self._rules.append(f"{name}: {' | '.join(dict.fromkeys(alternatives))}")

    def terminal(self, body: Terminal) -> str:
        """Its name."""
        return self._terminals.setdefault(body, f"{self._prefix.upper()}T{len(self._terminals)}")
