"""The waiting queue and the order in which it is served: first come, or longest cached prefix first.

Knows what the tree would reuse (through `matched`); knows nothing of pages, budgets or running sequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice

from palmette.runtime.config import Policy
from palmette.runtime.scheduler.sequence import Sequence

# Sequences looked at in one step: bounds the cost of ordering, and how far a long prefix can jump ahead.
WINDOW = 128
# Later arrivals of its priority that may be admitted before a sequence until it goes before them.
PATIENCE = 64


class WaitingQueue:
    """Sequences that hold no pages. Of one priority, retracted ones stand first, the others in order of arrival."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: dict[int, deque[Sequence]] = {}  # by priority; none is empty
        self.changes = 0  # arrivals and departures so far

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[Sequence]:
        """Higher priorities first."""
        return chain.from_iterable(self._waiting[priority] for priority in sorted(self._waiting, reverse=True))

    def add(self, sequence: Sequence) -> None:
        self.changes += 1
        self._waiting.setdefault(sequence.priority, deque()).append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """A retracted sequence: it was admitted before all that wait, and goes before them again."""
        self.changes += 1
        self._waiting.setdefault(sequence.priority, deque()).appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        self.changes += 1
        waiting = self._waiting[sequence.priority]
        waiting.remove(sequence)
        if not waiting:
            del self._waiting[sequence.priority]

    def admit(self, sequence: Sequence) -> None:
        """Takes `sequence` out, and counts it against those of its priority that arrived earlier and still wait."""
        for waiting in islice(self._waiting[sequence.priority], WINDOW):
            if waiting.order < sequence.order:
                waiting.passed_over += 1
        self.remove(sequence)

    def in_order(self, matched: Callable[[Sequence], int]) -> list[tuple[Sequence, int]]:
        """The next candidates, best first, with their matched tokens.

        A higher priority goes first, then what was retracted or passed over too often, in order of arrival; then,
        under "longest_prefix", the longest match; then order of arrival.
        """
        candidates = [(sequence, matched(sequence)) for sequence in islice(self, WINDOW)]
        candidates.sort(key=self._rank)
        return candidates

    def _rank(self, candidate: tuple[Sequence, int]) -> tuple[int, bool, int, int]:
        sequence, matched = candidate
        overdue = sequence.retractions > 0 or sequence.passed_over > PATIENCE
        by_prefix = self._policy == "longest_prefix" and not overdue
        return (-sequence.priority, not overdue, -matched if by_prefix else 0, sequence.order)
