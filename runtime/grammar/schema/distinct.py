"""Arrays whose items must differ, where the items can't be listed: which arrays of a text those are, found while
compiling.

Rules without context can't compare items; a matcher that remembers them can (runtime/grammar/distinct/matcher.py). It
needs to know of every array it comes to whether its items must differ. That is worked out here over the compiled
shapes: a node stands for all goals that a value at one place of a text may have, and where they disagree the schema is
refused. Called by rules.py and compile.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palmette.runtime.grammar.schema.arrays import ArrayStates
from palmette.runtime.grammar.schema.comparable import is_free, is_many
from palmette.runtime.grammar.schema.evaluate import canonical
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.shapes import (
    Claim,
    Goal,
    ObjectShape,
    ValueShape,
)

MAX_NODES = 2_000

Key = frozenset[Claim]


class Undecided(Exception):
    """Arrays at one place of a text differ in whether their items must."""


@dataclass
class Node:
    """A place in texts. None for a child below which no array is looked at.

    `unique`: an array here has different items. `free`: an item can always be made longer, so that it is never one of
    the earlier ones in the end. `many`: at each place of it there are more items than anyone writes. `loose`: objects
    and arrays here may be equal that are written differently.
    """

    unique: bool = False
    free: bool = False
    many: bool = False
    loose: bool = False
    names: dict[str, Node | None] = field(default_factory=dict)
    other: Node | None = None
    items: list[Node | None] = field(default_factory=list)  # those at the front of an array, one by one
    item: Node | None = None  # those behind

    def item_at(self, index: int) -> Node | None:
        return self.items[index] if index < len(self.items) else self.item

    def children(self) -> list[Node | None]:
        return [*self.names.values(), self.other, *self.items, self.item]


class Places:
    """The nodes of a compiled schema. `shapes`: what goals come to, arrays as automata."""

    def __init__(self, shapes: Mapping[Key, Iterable[object]], solver: Solver) -> None:
        self._shapes = shapes
        self._solver = solver
        self._nodes: dict[frozenset[Key], Node] = {}
        self._repeats = False

    def root(self, goal: Goal) -> Node | None:
        """None where no array is looked at. Raises Undecided."""
        shapes = (shape for each in self._shapes.values() for shape in each)
        if not any(isinstance(shape, ArrayStates) and shape.compared for shape in shapes):
            return None
        root = self._node([goal])
        wanted = self._wanted()
        if wanted and self._repeats:  # a constant of the schema's, which may stand where items must differ
            raise Undecided
        for node in self._nodes.values():
            node.names = {name: child if id(child) in wanted else None for name, child in node.names.items()}
            node.other = node.other if id(node.other) in wanted else None
            node.items = [child if id(child) in wanted or node.unique else None for child in node.items]
            node.item = node.item if id(node.item) in wanted or node.unique else None
        return root if root is not None and id(root) in wanted else None

    def _wanted(self) -> set[int]:
        """Nodes at or below which there is an array to look at, or such a part of an item that is."""
        inside = self._inside()
        for node in self._nodes.values():
            node.loose = node.loose and id(node) in inside
        above: dict[int, list[Node]] = {}
        for node in self._nodes.values():
            for child in node.children():
                above.setdefault(id(child), []).append(node)
        waiting = [node for node in self._nodes.values() if node.unique or node.loose]
        wanted = {id(node) for node in waiting}
        while waiting:
            for node in above.get(id(waiting.pop()), ()):
                if id(node) not in wanted:
                    wanted.add(id(node))
                    waiting.append(node)
        return wanted

    def _inside(self) -> set[int]:
        """The nodes of items of arrays to look at, and those below."""
        waiting = [child for node in self._nodes.values() if node.unique for child in (*node.items, node.item)]
        inside: set[int] = set()
        while waiting:
            node = waiting.pop()
            if node is not None and id(node) not in inside:
                inside.add(id(node))
                waiting += node.children()
        return inside

    def _node(self, goals: Iterable[Goal]) -> Node | None:
        first, waiting = self._opened(goals), list[tuple[Node, frozenset[Key]]]()
        if first is None:
            return None
        waiting.append(first)
        done: set[int] = set()
        while waiting:
            node, keys = waiting.pop()
            if id(node) in done:
                continue
            done.add(id(node))
            if len(self._nodes) > MAX_NODES:
                raise Undecided
            waiting += self._fill(node, [shape for key in keys for shape in self._shapes.get(key, ())])
        return first[0]

    def _opened(self, goals: Iterable[Goal]) -> tuple[Node, frozenset[Key]] | None:
        keys = frozenset(goal.key for goal in goals if goal.key in self._shapes)
        if not keys:
            return None
        return self._nodes.setdefault(keys, Node()), keys

    def _fill(self, node: Node, shapes: list[object]) -> list[tuple[Node, frozenset[Key]]]:
        objects = [shape for shape in shapes if isinstance(shape, ObjectShape)]
        arrays = [shape for shape in shapes if isinstance(shape, ArrayStates)]
        below: list[tuple[Node, frozenset[Key]]] = []
        others = [each.goal for shape in objects for each in shape.classes]
        for name in dict.fromkeys(each.name for shape in objects for each in shape.named):
            goals = [each.goal for shape in objects for each in shape.named if each.name == name]
            goals += [
                each.goal
                for shape in objects
                if all(each.name != name for each in shape.named) and name not in shape.known
                for each in shape.classes
            ]
            child = self._opened(goals)
            node.names[name] = child[0] if child else None
            below += [child] if child else []
        child = self._opened(others)
        node.other = child[0] if child else None
        below += [child] if child else []
        items = [goal for shape in arrays for goal in shape.goals()]
        length = max([len(shape.plain[0]) for shape in arrays if shape.plain is not None], default=0)
        for index in range(length + 1):
            child = self._opened(goal for shape in arrays for goal in _goals_at(shape, index))
            below += [child] if child else []
            if index < length:
                node.items.append(child[0] if child else None)
            else:
                node.item = child[0] if child else None
        self._repeats |= any(isinstance(shape, ValueShape) and _repeats(shape.value) for shape in shapes)
        node.loose = any(map(is_free, objects)) or any(shape.plain and shape.plain[3] is None for shape in arrays)
        if any(shape.compared for shape in arrays):
            if not all(shape.compared or _differ(shape) for shape in arrays):
                raise Undecided
            node.unique = True
            places = [self._solver.shapes(goal) for goal in items]
            node.free = all(is_free(shape) for shapes in places for shape in shapes)
            node.many = all(map(is_many, places))
        return below


def _goals_at(shape: ArrayStates, index: int) -> list[Goal]:
    """Of the item at a place of the array, if there may be one."""
    if shape.plain is None:
        return shape.goals()
    prefix, rest, _, most = shape.plain
    if most is not None and index >= most:
        return []
    return [prefix[index] if index < len(prefix) else rest]


def _repeats(value: Any) -> bool:
    """There is a list with equal items in it."""
    if isinstance(value, dict):
        return any(map(_repeats, value.values()))
    if not isinstance(value, list):
        return False
    return len(set(map(canonical, value))) < len(value) or any(map(_repeats, value))


def _differ(shape: ArrayStates) -> bool:
    """Its items differ anyway."""
    if shape.unique is not None:
        return True
    return shape.plain is not None and shape.plain[3] is not None and shape.plain[3] <= 1
