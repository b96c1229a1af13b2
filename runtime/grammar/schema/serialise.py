"""Values written as the grammar writes them: the schema's order of properties, the layout's whitespace, one numeral."""

from __future__ import annotations

from typing import Any

from palmette.runtime.grammar.schema import json_strings, numerals
from palmette.runtime.grammar.schema.evaluate import canonical, is_integral
from palmette.runtime.grammar.schema.found import within
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.shapes import ArrayShape, Claim, Goal, ObjectShape, Shape, ValueShape
from palmette.runtime.grammar.schema.terminals import Layout


class Serialiser:
    """Finds the shape of each part of a value, since an order may depend on the branch of an anyOf."""

    def __init__(self, solver: Solver, layout: Layout) -> None:
        self._solver = solver
        self._layout = layout

    def text(self, value: Any) -> str:
        return self._write(value, self._solver.goal(Claim(self._solver.document.root)))

    def _write(self, value: Any, goal: Goal) -> str:
        if isinstance(value, str):
            return f'"{json_strings.written(value)}"'
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, int | float):
            return numerals.numeral(numerals.decimal(int(value) if is_integral(value) else value))
        shape = self._shape_of(value, goal)
        if isinstance(value, list):
            goals = self._item_goals(value, shape)
            items = [self._write(item, each) for item, each in zip(value, goals, strict=True)]
            return f"[{self._layout.comma.join(items)}]"
        ordered = self._ordered(value, shape)
        members = [
            f'"{json_strings.written(name)}"{self._layout.colon}{self._write(value[name], each)}'
            for name, each in ordered
        ]
        return f"{{{self._layout.comma.join(members)}}}"

    def _meets(self, value: Any, goal: Goal) -> bool:
        return all(self._solver.evaluator.holds(claim.place, value) == claim.holds for claim in goal.claims)

    def _shape_of(self, value: Any, goal: Goal) -> Shape | None:
        wanted = ArrayShape if isinstance(value, list) else ObjectShape
        for shape in self._solver.shapes(self._solver.simple(goal)):
            if isinstance(shape, ValueShape) and type(shape.value) is type(value) and self._equal(shape, value):
                return shape
            if isinstance(shape, ArrayShape | ObjectShape) and isinstance(shape, wanted) and self._fits(value, shape):
                return shape
        return None

    def _equal(self, shape: ValueShape, value: Any) -> bool:
        return shape.text == canonical(value)

    def _fits(self, value: Any, shape: Shape) -> bool:
        if isinstance(shape, ObjectShape):
            goals = dict(self._ordered(value, shape))
            return (
                all(each.name in value for each in shape.named if each.required)
                and set(goals) == set(value)
                and all(self._meets(value[name], goal) for name, goal in goals.items())
            )
        assert isinstance(shape, ArrayShape)
        goals_of_items = self._item_goals(value, shape)
        return shape.least <= len(value) <= (len(value) if shape.most is None else shape.most) and all(
            self._meets(item, goal) for item, goal in zip(value, goals_of_items, strict=True)
        )

    def _item_goals(self, value: list[Any], shape: Shape | None) -> list[Goal]:
        if not isinstance(shape, ArrayShape):
            return [Goal.of([])] * len(value)
        count = len(shape.prefix)
        return [shape.prefix[index] if index < count else shape.rest for index in range(len(value))]

    def _ordered(self, value: dict[str, Any], shape: Shape | None) -> list[tuple[str, Goal]]:
        """The value's names in order, with the goals of their values; what the shape doesn't allow is left out."""
        if isinstance(shape, ValueShape):
            return [(name, Goal.of([])) for name in shape.value]
        if not isinstance(shape, ObjectShape):
            return [(name, Goal.of([])) for name in value]
        named = {each.name: each.goal for each in shape.named if each.name in value}
        for each in shape.classes:  # names from a list are written in its order
            for name in self._solver.listed(each.names) or ():
                if name in value and name not in shape.known and within(each, name):
                    named.setdefault(name, each.goal)
        others = []
        for name in value:
            if name in shape.known or name in named:
                continue
            for each in shape.classes:
                if within(each, name) and self._meets(name, each.names):
                    others.append((name, each.goal))
                    break
        return [*named.items(), *others]
