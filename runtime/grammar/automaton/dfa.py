"""Deterministic automata over character classes: made from nondeterministic ones, pruned and minimised.

Called by the automaton. Every loop draws on a Budget, so that no pattern can stall or fill the machine.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from time import thread_time
from typing import Generic, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.protocol import TooSlow

Moves = dict[int, frozenset[int]]
"""class → a set of nondeterministic states."""

DEAD = 0
"""The state of a table from which no text can be completed."""

MAX_WORK = 20_000_000
MAX_CELLS = 8_000_000
_MERGE_WORK = 200_000_000  # cells looked at in search of states that are the same

S = TypeVar("S", bound=Hashable)
S_contra = TypeVar("S_contra", contravariant=True)


class TooLarge(GrammarError):
    """The automaton would pass a limit. Another engine may take the pattern."""


class TooLong(TooLarge, TooSlow):
    """The time for it is over."""


class Budget:
    """What one compilation may still use: states, work, and CPU time of its thread."""

    def __init__(self, states: int, seconds: float) -> None:
        self.states = states
        self._seconds = seconds
        self._deadline = thread_time() + seconds
        self._work = MAX_WORK
        self._until_look = 0

    def spend(self, work: int) -> None:
        """Raises TooLarge."""
        self._work -= work
        self._until_look -= work
        if self._work < 0:
            raise self.too_large("takes too many steps to compile")
        if self._until_look < 0:
            self._until_look = 20_000
            if thread_time() > self._deadline:
                problem = self.too_large(f"takes longer than {self._seconds:g} seconds to compile")
                raise TooLong(problem.message, hint=problem.hint, param=problem.param)

    def check_states(self, count: int) -> None:
        if count > self.states:
            raise self.too_large(f"has more than {self.states:,} states")

    @staticmethod
    def too_large(problem: str) -> TooLarge:
        return TooLarge(
            f"The automaton of the regex {problem}.",
            hint="Lower the counts of its repeats ({…}), or avoid '.*' before them.",
            param="regex",
        )


class Source(Protocol[S]):
    """What is made deterministic: states whose moves are found as they are met."""

    def moves(self, state: S, /) -> Mapping[int, S]: ...

    def final(self, state: S, /) -> bool: ...


class Table(msgspec.Struct, Generic[S]):
    """States by number, 0 the start: `moves[s]` is class → state."""

    moves: list[dict[int, int]]
    finals: list[bool]


def determinise(start: S, source: Source[S], budget: Budget) -> Table[S]:
    """The states that can be reached. Raises TooLarge."""
    numbers = {start: 0}
    order = [start]
    table: Table[S] = Table([], [])
    for state in order:  # grows as it is read
        row: dict[int, int] = {}
        for class_, target in source.moves(state).items():
            number = numbers.get(target)
            if number is None:
                number = numbers[target] = len(order)
                order.append(target)
                budget.check_states(len(order))
            row[class_] = number
        budget.spend(len(row) + 1)
        table.moves.append(row)
        table.finals.append(source.final(state))
    return table


class Dfa(msgspec.Struct, frozen=True):
    """`delta[state, class]` is the next state; DEAD's row is all DEAD. The minimal automaton of its language."""

    delta: npt.NDArray[np.int32]  # [states, classes]
    finals: npt.NDArray[np.bool_]  # [states]
    start: int


def minimise(table: Table[S], classes: int, budget: Budget) -> Dfa:
    """Without states that lead nowhere, and with equal states merged. Raises TooLarge."""
    distance = _distances(table)
    alive = [state for state, far in enumerate(distance) if far is not None]
    if not alive or distance[0] is None:
        return Dfa(np.zeros((1, classes), np.int32), np.zeros(1, np.bool_), DEAD)
    if (len(alive) + 1) * classes > MAX_CELLS:
        raise budget.too_large(f"has {len(alive):,} states over {classes:,} kinds of characters")
    numbers = {state: at for at, state in enumerate(alive, 1)}
    delta = np.zeros((len(alive) + 1, classes), np.int32)
    finals = np.zeros(len(alive) + 1, np.bool_)
    finals[1:] = [table.finals[state] for state in alive]
    cells = [
        (at, class_, numbers[target])
        for state, at in numbers.items()
        for class_, target in table.moves[state].items()
        if target in numbers
    ]
    states, inputs, targets = np.array(cells, np.int32).T if cells else np.zeros((3, 0), np.int32)
    delta[states, inputs] = targets
    # States whose shortest or longest texts differ in length can't be the same, which spares long chains many rounds.
    longest = _longest(table, alive)
    apart = np.array([-1, *((distance[state] or 0) * (len(alive) + 1) + longest[state] for state in alive)], np.int64)
    parts = _merged(delta, np.unique(apart, return_inverse=True)[1].astype(np.int32), budget)
    _, firsts, merged = np.unique(parts, return_index=True, return_inverse=True)
    return Dfa(merged[delta[firsts]].astype(np.int32), finals[firsts], int(merged[numbers[0]]))


def _distances(table: Table[S]) -> list[int | None]:
    """Characters to the nearest end, per state; None where no end can be reached."""
    before: list[list[int]] = [[] for _ in table.moves]
    for state, row in enumerate(table.moves):
        for target in set(row.values()):
            before[target].append(state)
    distance: list[int | None] = [0 if final else None for final in table.finals]
    ring = [state for state, final in enumerate(table.finals) if final]
    far = 0
    while ring:
        far += 1
        ring, last = [], ring
        for state in last:
            for other in before[state]:
                if distance[other] is None:
                    distance[other] = far
                    ring.append(other)
    return distance


def _longest(table: Table[S], alive: list[int]) -> dict[int, int]:
    """Characters of the longest text from each state; as many as there are states where there is no longest."""
    living = set(alive)
    targets = {state: {target for target in table.moves[state].values() if target in living} for state in alive}
    before: dict[int, list[int]] = {state: [] for state in alive}
    for state, after in targets.items():
        for target in after:
            before[target].append(state)
    open_targets = {state: len(after) for state, after in targets.items()}
    longest = dict.fromkeys(alive, len(alive))
    ready = [state for state, count in open_targets.items() if not count]
    for state in ready:  # grows as it is read
        longest[state] = 1 + max((longest[target] for target in targets[state]), default=-1)
        for other in before[state]:
            open_targets[other] -= 1
            if not open_targets[other]:
                ready.append(other)
    return longest


def _merged(delta: npt.NDArray[np.int32], parts: npt.NDArray[np.int32], budget: Budget) -> npt.NDArray[np.int32]:
    """Splits `parts` until states of one part go to the same parts; DEAD stays part 0.

    Beyond a bound on work every state is its own part: the automaton is then as right, only larger.
    """
    weights = np.random.default_rng(0).integers(1, 2**63, delta.shape[1] + 1, np.uint64)
    count = int(parts.max()) + 1
    left = _MERGE_WORK
    while count < len(delta):
        hashes = (parts[delta].astype(np.uint64) * weights[1:]).sum(axis=1) + parts.astype(np.uint64) * weights[0]
        finer = np.unique(hashes, return_inverse=True)[1].astype(np.int32)
        budget.spend(1000)
        left -= delta.size
        if left < 0:
            break
        if int(finer.max()) + 1 == count:
            # Hashes decide how to split, never that states are the same.
            first = np.unique(parts, return_index=True)[1]
            if bool((parts[delta] == parts[delta[first[parts]]]).all()):
                return parts
            break
        parts, count = finer, int(finer.max()) + 1
    return np.arange(len(delta), dtype=np.int32)
