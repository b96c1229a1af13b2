"""No starvation: who has been passed over so much that it goes next.

Counts tokens, not time: the prefill given to sequences that arrived later, against what was queued on arrival. Knows
no policy. Used by the queue, one for each priority.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from palmette.runtime.scheduler.sequence import Sequence


class Aging:
    """A sequence is overdue once those that arrived after it were given more prefill tokens than
    `alpha` × the tokens that were queued before it on arrival + `beta`.

    Those that arrived at the same moment (between the same two steps) arrived together, none after another. An
    arrival costs O(1); an admission one vector operation over those that wait longer than the admitted one.
    """

    def __init__(self, alpha: float, beta: float) -> None:
        self._alpha = alpha
        self._beta = beta
        self._waiting: list[Sequence | None] = []  # in order of arrival; those that left are None
        self._moments: list[int] = []  # when each arrived; never falls
        self._slack = np.empty(64)  # tokens that may still be given to later ones; inf where it has left
        self._at: dict[Sequence, int] = {}
        self._tokens: dict[Sequence, int] = {}
        self.queued_tokens = 0

    def __len__(self) -> int:
        return len(self._at)

    def arrived(self, sequence: Sequence, tokens: int) -> None:
        """`tokens`: its prefill, as far as is known now."""
        index = len(self._waiting)
        if index == len(self._slack):
            self._compact()
            index = len(self._waiting)
        self._slack[index] = self._alpha * self.queued_tokens + self._beta
        self._waiting.append(sequence)
        self._moments.append(sequence.moment)
        self._at[sequence] = index
        self._tokens[sequence] = tokens
        self.queued_tokens += tokens

    def left(self, sequence: Sequence) -> None:
        """Aborted, or overdue: it needs no account any more. Nothing happens to one without."""
        index = self._at.pop(sequence, None)
        if index is None:
            return
        self._waiting[index] = None
        self._slack[index] = np.inf
        self.queued_tokens -= self._tokens.pop(sequence)

    def admitted(self, moment: int, tokens: int) -> list[Sequence]:
        """`tokens` of prefill were given to a sequence that arrived at `moment`. Who is overdue now, oldest first."""
        slack = self._slack[: bisect_left(self._moments, moment)]
        slack -= tokens
        overdue = [self._waiting[index] for index in np.flatnonzero(slack < 0).tolist()]
        return [sequence for sequence in overdue if sequence is not None]

    def _compact(self) -> None:
        kept = [sequence for sequence in self._waiting if sequence is not None]
        slack = self._slack[[self._at[sequence] for sequence in kept]]
        self._slack = np.empty(max(64, 2 * len(kept)))
        self._slack[: len(kept)] = slack
        self._waiting = list(kept)
        self._moments = [sequence.moment for sequence in kept]
        self._at = {sequence: index for index, sequence in enumerate(kept)}
