"""The goals that a root comes to, their shapes without what is hopeless; and which of them a value can meet.

Called by rules.py before it writes rules; knows no rules.
"""

from __future__ import annotations

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema.arrays import ArrayStates, array_states
from palmette.runtime.grammar.schema.found import within
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.shapes import (
    ArrayShape,
    Claim,
    Goal,
    KeyClass,
    NamedProperty,
    NumberShape,
    ObjectShape,
    Shape,
    SimpleShape,
    StringShape,
    ValueShape,
)
from palmette.runtime.grammar.schema.terminals import Terminals

MAX_GOALS = 15_000

Settled = ValueShape | SimpleShape | NumberShape | StringShape | ObjectShape | ArrayStates
"""A shape whose array is an automaton."""


class Reachable:
    """`goals` by their keys, and the `shapes` of each. Raises GrammarError for too many, and where nothing meets the
    root."""

    def __init__(self, root: Goal, solver: Solver, terminals: Terminals) -> None:
        self._solver = solver
        self._terminals = terminals
        self.goals: dict[frozenset[Claim], Goal] = {}
        self.shapes: dict[frozenset[Claim], list[Settled]] = {}
        self._productive: set[frozenset[Claim]] = set()
        self._reach(root)
        self._find_productive()
        if not self.ends(root):
            raise GrammarError(
                "No value meets the schema.",
                hint="Some of what it requires excludes the rest, or it requires itself without end.",
                param="json_schema",
            )

    def productive(self) -> list[Goal]:
        """Those that some value meets."""
        return [goal for goal in self.goals.values() if self.ends(goal)]

    def _reach(self, root: Goal) -> None:
        waiting = [root]
        while waiting:
            goal = waiting.pop()
            if goal.key in self.goals or goal.never:
                continue
            self.goals[goal.key] = goal
            if len(self.goals) > MAX_GOALS:
                raise GrammarError("The schema comes to too many rules.", hint="Make it smaller.", param="json_schema")
            with self._solver.at(goal):
                shapes = [self._simplified(shape) for shape in self._solver.shapes(goal)]
            self.shapes[goal.key] = [shape for shape in dict.fromkeys(shapes) if shape is not None]
            for shape in self.shapes[goal.key]:
                waiting.extend(_children(shape))

    def _simplified(self, shape: Shape) -> Settled | None:
        """The shape with its children's references followed and what is hopeless left out; None if it is hopeless."""
        simple = self._solver.simple
        match shape:
            case StringShape():
                return None if self._terminals.text_is_empty(shape) else shape
            case NumberShape():
                return None if self._terminals.number_is_empty(shape) else shape
            case ArrayShape():
                return array_states(shape, self._solver)
            case ObjectShape():
                classes = [
                    KeyClass(each.patterns, each.others, simple(each.names), simple(each.goal))
                    for each in shape.classes
                    if not each.goal.never
                ]
                named = [NamedProperty(each.name, each.required, simple(each.goal)) for each in shape.named]
                if any(each.required and each.goal.never for each in named):
                    return None
                return self._object_simplified(shape, [each for each in named if not each.goal.never], classes)
        return shape

    def _object_simplified(
        self, shape: ObjectShape, named: list[NamedProperty], classes: list[KeyClass]
    ) -> ObjectShape:
        known = dict.fromkeys(shape.known)
        kept: list[KeyClass] = []
        for each in classes:
            texts = self._solver.listed(each.names)
            if texts is None:
                kept.append(each)
                continue
            for text in texts:  # names from a list are named properties
                if text not in known and within(each, text):
                    named.append(NamedProperty(text, False, each.goal))
        keys = [each for each in kept if not self._terminals.key_is_empty(each, shape.known)]
        return ObjectShape(tuple(named), shape.known, tuple(keys), shape.least, shape.most)

    def _find_productive(self) -> None:
        changed = True
        while changed:
            changed = False
            for key, shapes in self.shapes.items():
                if key not in self._productive and any(map(self.is_productive, shapes)):
                    self._productive.add(key)
                    changed = True

    def ends(self, goal: Goal) -> bool:
        return goal.key in self._productive

    def is_productive(self, shape: Settled) -> bool:
        match shape:
            case ObjectShape(named, _, classes, least, most):
                if not all(self.ends(each.goal) for each in named if each.required):
                    return False
                ending = sum(self.ends(each.goal) for each in named)
                required = sum(each.required for each in named)
                open_ended = any(self.ends(each.goal) for each in classes)
                return (most is None or required <= most) and (open_ended or ending >= least)
            case ArrayStates():
                return shape.ends(self.ends)
        return True


def _children(shape: Settled) -> list[Goal]:
    match shape:
        case ObjectShape(named, _, classes):
            return [each.goal for each in named] + [each.goal for each in classes]
        case ArrayStates():
            return shape.goals()
    return []
