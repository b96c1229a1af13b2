"""The waiting queue: higher priorities first, in each those that are due before all others, then the policy's order.

Under a policy that is there for reuse, calls that go on with a program come before those that begin one. Knows nothing
of pages, budgets or slots. Owned by the core; admission and planner ask it for candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from palmette.runtime.scheduler.aging import Aging
from palmette.runtime.scheduler.policies import Policy
from palmette.runtime.scheduler.ranking import Ranking
from palmette.runtime.scheduler.sequence import Sequence

MOST_LEVELS = 64  # priorities that are kept ready; beyond that the empty ones go


class WaitingQueue:
    """Sequences that hold no pages. Asking for candidates costs nothing for those that aren't looked at."""

    def __init__(
        self,
        new_policy: Callable[[], Policy],
        new_aging: Callable[[], Aging],
        peek: Callable[[Sequence], int],
        goes_on: Callable[[Sequence], bool],
    ) -> None:
        """`peek`: tokens of a sequence that the tree holds; `goes_on`: whether it goes on where a path ends there."""
        self._new_policy = new_policy
        self._new_aging = new_aging
        self._peek = peek
        self._goes_on = goes_on
        self._levels: dict[int, _Level] = {}  # by priority, highest first
        self._waiting: dict[Sequence, None] = {}
        self.changes = 0  # arrivals and departures so far

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiting)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._waiting

    def add(self, sequence: Sequence) -> None:
        """A new one, or one that was retracted: that was before all that wait, and is again."""
        self.changes += 1
        self._waiting[sequence] = None
        level = self._level(sequence.priority)
        if sequence.retractions:
            level.due.put(sequence, 0)
        else:
            matched = self._peek(sequence) if level.aged else 0
            level.add(sequence, matched, goes_on=level.programs_first and self._goes_on(sequence))

    def remove(self, sequence: Sequence) -> None:
        self.changes += 1
        self._level(sequence.priority).remove(sequence)
        del self._waiting[sequence]

    def admit(self, sequence: Sequence, tokens: int) -> None:
        """Takes `sequence` out; `tokens` of prefill are given to it, and counted against those that came earlier."""
        level = self._level(sequence.priority)
        policy = level.policy_of(sequence)
        self.remove(sequence)
        policy.started(sequence, tokens)
        level.age(sequence, tokens)

    def candidates(self, *, overdue_first: bool = False) -> Iterator[Sequence]:
        """Best first. The one that was yielded last may be admitted before the next is asked for.

        `overdue_first`: overdue ones that begin a program come before those that go on with one.
        """
        for level in tuple(self._levels.values()):
            yield from level.candidates(overdue_first)

    def begins(self, sequence: Sequence) -> bool:
        """Whether it begins a program, under a policy that has those under way go first."""
        level = self._level(sequence.priority)
        return level.programs_first and sequence not in level.turns and not sequence.retractions

    def turn(self, sequence: Sequence) -> int:
        """Tokens of its prompt by which it goes on with a program, as of its arrival; 0 where it begins one."""
        return self._level(sequence.priority).turns.get(sequence, 0)

    def is_overdue(self, sequence: Sequence) -> bool:
        """Whether it was passed over so much that it waits for nobody's prefix any more."""
        return self._level(sequence.priority).is_overdue(sequence)

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        """The tree now holds all of `key`; its first `known` tokens it held before."""
        if self._waiting:
            for level in self._levels.values():
                level.grown(namespace, key, known)

    def rebuild(self, waiting: Iterable[Sequence]) -> None:
        """All orders anew from those that wait: after a fault, or when the tree lost much. Their waits count anew."""
        self._levels = {}
        self._waiting = {}
        for sequence in waiting:
            self.add(sequence)

    def _level(self, priority: int) -> _Level:
        level = self._levels.get(priority)
        if level is None:
            if len(self._levels) >= MOST_LEVELS:
                kept = {each.priority for each in self._waiting}
                self._levels = {each: level for each, level in self._levels.items() if each in kept}
            level = _Level(self._new_policy(), self._new_policy(), self._new_aging())
            self._levels = dict(sorted({**self._levels, priority: level}.items(), reverse=True))
        return level


class _Level:
    """Those of one priority. `due` go before all others: the retracted, and overdue ones that go on with a program;
    `overdue` before all others that begin one; both in order of arrival. `turns`: of those that go on with one."""

    def __init__(self, under_way: Policy, beginning: Policy, aging: Aging) -> None:
        self.aged, self.programs_first = beginning.aged, beginning.programs_first
        self.due = Ranking()
        self.overdue = Ranking()
        self.turns: dict[Sequence, int] = {}
        self._under_way = under_way
        self._beginning = beginning
        self._aging = aging

    def add(self, sequence: Sequence, matched: int, *, goes_on: bool) -> None:
        if goes_on:
            self.turns[sequence] = sequence.length - matched
        self.policy_of(sequence).add(sequence, matched)
        if self.aged:
            self._aging.arrived(sequence, sequence.length - matched)

    def candidates(self, overdue_first: bool) -> Iterator[Sequence]:
        yield from self.due
        parts = [self._under_way.candidates(), iter(self.overdue)]
        for part in reversed(parts) if overdue_first else parts:
            yield from part
        yield from self._beginning.candidates()

    def is_overdue(self, sequence: Sequence) -> bool:
        return sequence in self.overdue or (sequence in self.due and not sequence.retractions)

    def remove(self, sequence: Sequence) -> None:
        for place in (self.due, self.overdue):
            if sequence in place:
                place.remove(sequence)
                break
        else:
            self.policy_of(sequence).remove(sequence)
            self._aging.left(sequence)
        self.turns.pop(sequence, None)

    def age(self, sequence: Sequence, tokens: int) -> None:
        """One of them, already removed, was admitted with `tokens` tokens to prefill."""
        if self.aged:
            for overdue in self._aging.admitted(sequence.moment, tokens):
                self.policy_of(overdue).remove(overdue)
                self._aging.left(overdue)
                (self.due if overdue in self.turns else self.overdue).put(overdue, 0)

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        for policy in (self._under_way, self._beginning):
            policy.grown(namespace, key, known)

    def policy_of(self, sequence: Sequence) -> Policy:
        return self._under_way if sequence in self.turns else self._beginning
