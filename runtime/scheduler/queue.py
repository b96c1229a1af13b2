"""The waiting queue and the order in which it is served: first come, or longest cached prefix first.

Knows what the tree would reuse (through `matched`); knows nothing of pages, budgets or running sequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from palmette.runtime.config import Policy
from palmette.runtime.scheduler.sequence import Sequence

# Sequences looked at in one step: bounds the cost of ordering, and how far a long prefix can jump ahead.
WINDOW = 128
# Later arrivals that may be admitted before a sequence until it goes first.
PATIENCE = 64


class WaitingQueue:
    """Sequences that hold no pages. Retracted ones come back to the head, the others stand in order of arrival."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiting)

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """A retracted sequence: it was admitted before all that wait, and goes before them again."""
        self._waiting.appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        self._waiting.remove(sequence)

    def admit(self, sequence: Sequence) -> None:
        """Takes `sequence` out, and counts it against those that arrived before it and still wait."""
        for waiting in islice(self._waiting, WINDOW):
            if waiting.order < sequence.order:
                waiting.passed_over += 1
        self._waiting.remove(sequence)

    def in_order(self, matched: Callable[[Sequence], int]) -> list[tuple[Sequence, int]]:
        """The next candidates, best first, with their matched tokens.

        A higher priority goes first, then what was retracted or passed over too often; then, under
        "longest_prefix", the longest match; then order of arrival.
        """
        candidates = [(sequence, matched(sequence)) for sequence in islice(self._waiting, WINDOW)]
        by_prefix = self._policy == "longest_prefix"
        candidates.sort(key=lambda c: (-c[0].priority, not _overdue(c[0]), -c[1] if by_prefix else 0, c[0].order))
        return candidates


def _overdue(sequence: Sequence) -> bool:
    return sequence.retractions > 0 or sequence.passed_over > PATIENCE
