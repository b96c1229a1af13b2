"""The waiting queue: higher priorities first, in each those that are due before all others, then the policy's order.

Knows nothing of pages, budgets or slots. Owned by the core; admission and planner ask it for candidates.
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
        self, new_policy: Callable[[], Policy], new_aging: Callable[[], Aging], peek: Callable[[Sequence], int]
    ) -> None:
        """`peek`: tokens of a sequence that the tree holds."""
        self._new_policy = new_policy
        self._new_aging = new_aging
        self._peek = peek
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
            level.add(sequence, self._peek(sequence) if level.policy.aged else 0)

    def remove(self, sequence: Sequence) -> None:
        self.changes += 1
        self._level(sequence.priority).remove(sequence)
        del self._waiting[sequence]

    def admit(self, sequence: Sequence, tokens: int) -> None:
        """Takes `sequence` out; `tokens` of prefill are given to it, and counted against those that came earlier."""
        self.remove(sequence)
        self._level(sequence.priority).started(sequence, tokens)

    def candidates(self) -> Iterator[Sequence]:
        """Best first. The one that was yielded last may be admitted before the next is asked for."""
        for level in tuple(self._levels.values()):
            yield from level.due
            yield from level.policy.candidates()

    def is_overdue(self, sequence: Sequence) -> bool:
        """Whether it waited so long that nothing goes before it any more, and it for nothing but pages."""
        return sequence in self._level(sequence.priority).overdue

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        """The tree now holds all of `key`; its first `known` tokens it held before."""
        if self._waiting:
            for level in self._levels.values():
                level.policy.grown(namespace, key, known)

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
            level = _Level(self._new_policy(), self._new_aging())
            self._levels = dict(sorted({**self._levels, priority: level}.items(), reverse=True))
        return level


class _Level:
    """Those of one priority. `due`: the retracted and the overdue, in order of arrival."""

    def __init__(self, policy: Policy, aging: Aging) -> None:
        self.policy = policy
        self.due = Ranking()
        self.overdue: set[Sequence] = set()
        self._aging = aging

    def add(self, sequence: Sequence, matched: int) -> None:
        self.policy.add(sequence, matched)
        if self.policy.aged:
            self._aging.arrived(sequence, sequence.length - matched)

    def remove(self, sequence: Sequence) -> None:
        if sequence in self.due:
            self.due.remove(sequence)
            self.overdue.discard(sequence)
        else:
            self.policy.remove(sequence)
            self._aging.left(sequence)

    def started(self, sequence: Sequence, tokens: int) -> None:
        self.policy.started(sequence, tokens)
        if self.policy.aged:
            for overdue in self._aging.admitted(sequence.moment, tokens):
                self.remove(overdue)
                self.due.put(overdue, 0)
                self.overdue.add(overdue)
