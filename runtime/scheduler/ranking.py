"""Waiting sequences in the order of a rank, kept sorted as they come, go and change.

Knows nothing of what ranks mean. Used by the policies and the queue.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from palmette.runtime.scheduler.sequence import Sequence

Entry = tuple[float, int, Sequence]  # rank, order of arrival; no two sequences have the same order


class Ranking:
    """Least rank first, then order of arrival. A change costs a bisection and a move of pointers."""

    def __init__(self) -> None:
        self._sorted: list[Entry] = []
        self._ranks: dict[Sequence, float] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._ranks

    def __iter__(self) -> Iterator[Sequence]:
        """Best first. The one that was yielded last may be removed, or given a higher rank, meanwhile."""
        at = 0
        while at < len(self._sorted):
            entry = self._sorted[at]
            yield entry[2]
            if at < len(self._sorted) and self._sorted[at] is entry:
                at += 1

    def rank(self, sequence: Sequence) -> float:
        return self._ranks[sequence]

    def put(self, sequence: Sequence, rank: float) -> None:
        """Adds it, or gives it another rank."""
        known = self._ranks.get(sequence)
        if known == rank:
            return
        if known is not None:
            self.remove(sequence)
        self._ranks[sequence] = rank
        insort(self._sorted, (rank, sequence.order, sequence))

    def remove(self, sequence: Sequence) -> None:
        rank = self._ranks.pop(sequence)
        del self._sorted[bisect_left(self._sorted, (rank, sequence.order, sequence))]
