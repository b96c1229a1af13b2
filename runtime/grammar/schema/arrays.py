"""Arrays as automata over their items, where counting or telling items apart is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema.comparable import comparable
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.shapes import (
    NEVER,
    PLAIN,
    ArrayShape,
    Claim,
    Contained,
    Goal,
    NumberShape,
    SimpleShape,
    ValueShape,
)

MAX_STATES = 3_000
UNREACHED = 2**24  # items that no text has
MAX_UNIQUE = 64  # values that unique items may have: a rule's parameter has a bit for each

Plain = tuple[tuple[Goal, ...], Goal, int, int | None]
Move = tuple[Goal, int]


@dataclass(frozen=True)
class Distinct:
    """From `least` to `most` of these values, in any order."""

    values: tuple[Goal, ...]
    least: int
    most: int | None


@dataclass(frozen=True)
class ArrayStates:
    """`plain`: prefix, rest, least, most; or `unique`; or an automaton, whose moves each take an item.

    State 0 is the start. `compared`: the rules let equal items through, which a matcher holds apart.
    """

    plain: Plain | None = None
    compared: bool = False
    unique: Distinct | None = None
    moves: tuple[tuple[Move, ...], ...] = ()
    accepting: frozenset[int] = frozenset()

    def goals(self) -> list[Goal]:
        if self.plain is not None:
            prefix, rest, _, _ = self.plain
            return [*prefix, rest]
        if self.unique is not None:
            return list(self.unique.values)
        return [goal for moves in self.moves for goal, _ in moves]

    def ends(self, ends: Callable[[Goal], bool]) -> bool:
        """Whether the array can be finished, if `ends` says so of its items."""
        if self.plain is not None:
            prefix, rest, least, _ = self.plain
            return all(map(ends, prefix[:least])) and (least <= len(prefix) or ends(rest))
        if self.unique is not None:
            return True  # constants, as many as are asked for
        return 0 in self.ending(ends)

    def ending(self, ends: Callable[[Goal], bool]) -> set[int]:
        """The states from which the array can be finished, and that can be reached."""
        back: dict[int, list[int]] = {}
        reached, waiting = {0}, [0]
        while waiting:
            state = waiting.pop()
            for goal, target in self.moves[state]:
                if ends(goal):
                    back.setdefault(target, []).append(state)
                    if target not in reached:
                        reached.add(target)
                        waiting.append(target)
        found = set(self.accepting & reached)
        waiting = list(found)
        while waiting:
            for state in back.get(waiting.pop(), ()):
                if state not in found:
                    found.add(state)
                    waiting.append(state)
        return found


def array_states(shape: ArrayShape, solver: Solver) -> ArrayStates | None:
    """The shape's automaton; None where no array has it."""
    prefix = tuple(solver.simple(goal) for goal in shape.prefix)
    rest = solver.simple(shape.rest)
    least, most = shape.least, shape.most
    if most is not None and most >= UNREACHED:
        most = None
    for index, goal in enumerate((*prefix, rest)):
        if goal.never:
            most = index if most is None else min(most, index)
            break
    if most is not None and most < least:
        return None
    unique = shape.unique and (most is None or most > 1)
    contained = tuple(each for each in shape.contained if each.least > 0 or each.most is not None)
    if any(each.most is not None and each.most < each.least for each in contained):
        return None
    if unique:
        return _unique(prefix, rest, least, most, contained, solver)
    if not contained:
        return ArrayStates(plain=(prefix, rest, least, most))
    return _counting(prefix, rest, least, most, contained, solver)


def _too_many() -> GrammarError:
    return GrammarError(
        f"An array's contains, minItems and maxItems come to more than {MAX_STATES:,} states.",
        hint="Use smaller counts.",
        param="json_schema",
    )


def _counting(
    prefix: tuple[Goal, ...],
    rest: Goal,
    least: int,
    most: int | None,
    contained: tuple[Contained, ...],
    solver: Solver,
) -> ArrayStates:
    """States: how many items so far (as far as it matters), and how many of them each `contains` has counted."""
    cap = max(len(prefix), least, most if most is not None else 0, 1)
    states: dict[tuple[int, ...], int] = {(0, *[0] * len(contained)): 0}
    waiting = list(states)
    moves: dict[int, tuple[Move, ...]] = {}
    while waiting:
        state = waiting.pop()
        length, counts = state[0], state[1:]
        item = prefix[length] if length < len(prefix) else rest
        out: list[tuple[Goal, tuple[int, ...]]] = []
        ways = product((True, False), repeat=len(contained)) if most is None or length < most else ()
        for inside in ways:
            claims, after, possible = list(item.claims), [min(length + 1, cap)], True
            for each, count, counted in zip(contained, counts, inside, strict=True):
                if counted:
                    claims += each.goal.claims
                    # enough already, and nobody counts further: the way without says it all
                    possible &= count < (each.least if each.most is None else each.most)
                elif each.most is not None:
                    claims += _denied(each.goal)
                after.append(count + counted)
            goal = solver.goal(*claims)
            if possible and not goal.never:
                out.append((goal, tuple(after)))
        for _, target in out:
            if target not in states:
                states[target] = len(states)
                waiting.append(target)
                if len(states) > MAX_STATES:
                    raise _too_many()
        moves[states[state]] = tuple((goal, states[target]) for goal, target in out)
    accepting = frozenset(
        number
        for state, number in states.items()
        if state[0] >= least and all(count >= each.least for count, each in zip(state[1:], contained, strict=True))
    )
    return ArrayStates(moves=tuple(moves[number] for number in range(len(states))), accepting=accepting)


def _denied(goal: Goal) -> list[Claim]:
    """The opposite of a goal of one claim."""
    assert len(goal.claims) <= 1
    return [goal.claims[0].denied()] if goal.claims else list(NEVER.claims)


def _unique(
    prefix: tuple[Goal, ...],
    rest: Goal,
    least: int,
    most: int | None,
    contained: tuple[Contained, ...],
    solver: Solver,
) -> ArrayStates | None:
    """Items that differ, where few values are possible."""
    values = _values(rest, solver)
    if prefix or contained or values is None or len(values) > MAX_UNIQUE:
        needed = max(least, sum(each.least for each in contained))
        for plain in (False, True) if solver.compares_items and all(not each.most for each in contained) else ():
            goals = [solver.goal(*goal.claims, PLAIN) if plain else goal for goal in (*prefix, rest)]
            states = ArrayStates(plain=(tuple(goals[:-1]), goals[-1], least, most))
            if contained:
                states = _counting(tuple(goals[:-1]), goals[-1], least, most, contained, solver)
            if comparable(states.goals(), needed, solver):
                return replace(states, compared=True)
        solver.give_up(
            f"'uniqueItems' can't be enforced: it can for items with at most {MAX_UNIQUE} possible values.",
            "Use an enum for the items, or leave uniqueItems out",
        )
        if contained:
            return _counting(prefix, rest, least, most, contained, solver)
        return ArrayStates(plain=(prefix, rest, least, most))
    root = solver.document.root
    constants = {
        text: solver.goal(Claim(solver.document.synthesized(root, f"~value:{text}", {"const": value})))
        for text, value in values.items()
    }
    if len(values) < least or not values:
        return ArrayStates(plain=((), NEVER, 0, 0)) if least == 0 else None
    return ArrayStates(unique=Distinct(tuple(constants.values()), least, most))


def _values(goal: Goal, solver: Solver) -> dict[str, Any] | None:
    """The goal's values by their canonical texts, if they are finitely many."""
    values: dict[str, Any] = {}
    for shape in solver.shapes(goal):
        if isinstance(shape, ValueShape):
            values[shape.text] = shape.value
        elif isinstance(shape, NumberShape) and shape.integral and not shape.multiples:
            low, high = shape.interval.integers()
            if low is None or high is None or high - low >= MAX_UNIQUE:
                return None
            values.update((str(number), number) for number in range(low, high + 1))
        elif isinstance(shape, SimpleShape):
            values[shape.text] = {"null": None, "true": True, "false": False}[shape.text]
        else:
            return None
    return values
