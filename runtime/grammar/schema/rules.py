"""Shapes as rules of llguidance's Lark dialect: values of every type, and arrays (objects are objects.py's).

Made by compile.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import json_strings, numerals
from palmette.runtime.grammar.schema.arrays import ArrayStates, Distinct
from palmette.runtime.grammar.schema.distinct import Node, Places
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.json_strings import Terminal
from palmette.runtime.grammar.schema.lines import Lines
from palmette.runtime.grammar.schema.objects import ObjectRules
from palmette.runtime.grammar.schema.reachable import Reachable
from palmette.runtime.grammar.schema.shapes import Goal, ObjectShape, SimpleShape, ValueShape
from palmette.runtime.grammar.schema.terminals import Layout, Terminals

MAX_REPEAT = 100_000


class Rules:
    """The rules of one schema. Raises GrammarError for what nothing meets, and for too many rules.

    `is_empty` says whether a terminal matches nothing.
    """

    def __init__(
        self, root: Goal, solver: Solver, layout: Layout, prefix: str, is_empty: Callable[[Terminal], bool]
    ) -> None:
        self._solver = solver
        self._root = solver.simple(root)
        self._terminals = Terminals(solver, layout, is_empty)
        self._reachable = Reachable(self._root, solver, self._terminals)
        self._comma = self._terminals.comma
        self._lines = Lines(prefix, solver.check_time)
        self._objects = ObjectRules(solver, self._reachable, self._terminals, self._lines)

    def lines(self) -> tuple[str, list[str]]:
        """The name of the root's rule, and all rules and terminals."""
        for goal in self._reachable.productive():
            with self._solver.at(goal):
                self._lines.rule(self._lines.name(goal), self._alternatives(goal))
        return self._lines.name(self._root), self._lines.all()

    def places(self) -> Node | None:
        """Where a matcher has to hold items apart. Raises Undecided."""
        return Places(self._reachable.shapes, self._solver).root(self._root)

    def _alternatives(self, goal: Goal) -> list[str]:
        shapes = [shape for shape in self._reachable.shapes[goal.key] if self._reachable.is_productive(shape)]
        out: list[str] = []
        texts = self._terminals.texts(shapes)
        if texts is not None:
            out.append(self._lines.terminal(f'("\\"" {texts} "\\"")'))
        numbers = [part for shape in shapes for part in self._terminals.numbers(shape)]
        rules = [part for part in numbers if part.startswith("%")]
        terminals = list(dict.fromkeys(part for part in numbers if not part.startswith("%")))
        if terminals:
            out.append(self._lines.terminal(terminals[0] if len(terminals) == 1 else f"({' | '.join(terminals)})"))
        for part in dict.fromkeys(rules):
            name = self._lines.fresh("n")
            self._lines.rule(name, [part])
            out.append(name)
        for shape in shapes:
            match shape:
                case SimpleShape(text):
                    out.append(f'"{text}"')
                case ValueShape(_, value) if isinstance(value, list | dict | bool) or value is None:
                    out.append(self._value(value))
                case ArrayStates():
                    out.append(self._array(shape))
                case ObjectShape():
                    out.extend(self._objects.ways(shape))
        return out

    def _value(self, value: Any) -> str:
        if isinstance(value, list):
            return " ".join(['"["', *self._joined([self._value(item) for item in value]), '"]"'])
        if isinstance(value, dict):
            items = [
                f"{self._lines.terminal(self._terminals.literal_key(name))} {self._value(inner)}"
                for name, inner in value.items()
            ]
            return " ".join(['"{"', *self._joined(items), '"}"'])
        if isinstance(value, str):
            return self._lines.terminal(json_strings.literal(f'"{json_strings.written(value)}"'))
        if isinstance(value, bool) or value is None:
            return {True: '"true"', False: '"false"', None: '"null"'}[value]
        return self._lines.terminal(json_strings.literal(numerals.numeral(numerals.decimal(value))))

    def _joined(self, items: list[str]) -> list[str]:
        return [part for index, item in enumerate(items) for part in ([self._comma] if index else []) + [item]]

    # Arrays

    def _array(self, states: ArrayStates) -> str:
        if states.plain is not None:
            return self._plain_array(states)
        if states.unique is not None:
            return self._distinct(states.unique)
        base = self._lines.fresh("a")
        ending = states.ending(self._reachable.ends)
        for number in sorted(ending):
            options = ['"]"'] if number in states.accepting else []
            for goal, target in states.moves[number]:
                if self._reachable.ends(goal) and target in ending:
                    comma = [] if number == 0 else [self._comma]
                    options.append(" ".join([*comma, self._lines.name(goal), f"{base}_{target}"]))
            self._lines.rule(f"{base}_{number}", options)
        return f'"[" {base}_0'

    def _distinct(self, distinct: Distinct) -> str:
        """A rule whose parameter has a bit for each value that was used."""
        base = self._lines.fresh("u")
        names = [self._lines.name(goal) for goal in distinct.values]
        most = len(names) if distinct.most is None else min(distinct.most, len(names))
        more = [
            f"{self._comma} {name} {base}::set_bit({bit}) %if and(bit_clear({bit}), bit_count_lt(_, {most}))"
            for bit, name in enumerate(names)
        ]
        self._lines.rule(f"{base}::_", [f'"]" %if bit_count_ge(_, {distinct.least})', *more])
        first = [f"{name} {base}::{1 << bit:#x}" for bit, name in enumerate(names)]
        return f'"[" ({" | ".join([*first, *([] if distinct.least else [chr(34) + "]" + chr(34)])])})'

    def _plain_array(self, states: ArrayStates) -> str:
        assert states.plain is not None
        prefix, rest, least, most = states.plain
        limit = next((index for index, goal in enumerate(prefix) if not self._reachable.ends(goal)), None)
        if limit is None and not self._reachable.ends(rest):
            limit = len(prefix)
        if limit is not None:
            most = limit if most is None else min(most, limit)
            prefix = prefix[:limit]
        items = [self._lines.name(goal) for goal in prefix]
        text = ""
        if most is None or most > len(items):
            low = max(0, least - len(items))
            high = None if most is None else most - len(items)
            item = self._lines.name(rest)
            if items:
                text = f"({self._comma} {item}){_times(low, high)}"
            else:
                again = None if high is None else high - 1
                more = "" if again == 0 else f"({self._comma} {item}){_times(max(0, low - 1), again)}"
                some = f"{item} {more}".rstrip()
                return f'"[" {some} "]"' if low else f'"[" ({some})? "]"'
        elif most is not None:
            items = items[:most]
        for index in range(len(items) - 1, -1, -1):
            member = f"{self._comma if index else ''} {items[index]} {text}".strip()
            text = member if index < least else f"({member})?"
        return f'"[" {text} "]"'


def _times(low: int, high: int | None) -> str:
    if max(low, high or 0) > MAX_REPEAT:
        raise GrammarError(
            f"minItems and maxItems are at most {MAX_REPEAT:,} here.", hint="Use smaller counts.", param="json_schema"
        )
    if (low, high) == (0, None):
        return "*"
    assert high != 0, "nothing is written out as nothing"
    return f"{{{low},{'' if high is None else high}}}"
