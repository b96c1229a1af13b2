"""When will something be used again? A survival model over ages, learned online; and what it is worth to wait for it.

Ages are cut into half octaves, in whatever unit the clock has. The log-odds that something unused so far is used within
the next half octave are a sum of weights: one for the age, one for the age against the last gap between uses, one for
each trait. Weights follow the gradient of the likelihood (AdaGrad, Duchi et al. 2011). What is still waiting counts for
the ages it has survived, so nothing waits for a verdict. Knows no nodes. Called by learned.py only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

AGES = 44  # 0–1, 1–1.4, 1.4–2, … 2^21
EDGES = [0.0, *(2 ** (half / 2) for half in range(AGES))]
GAPS = 25  # none, then octaves
LAGS = 17  # no gap, then the age against the gap in half octaves: a 32nd … 8 times
SCORES = 24  # rows of the worth table: sums of the traits' weights, in steps
SCORE_STEP = 0.25
RATE = 0.1
CAUTION = 5.0  # how much has to be seen of a trait before its weight moves freely
RARELY = -3.5  # log-odds before anything is known: the same for each half octave, which orders as LRU does
WINDOW = 16384  # uses that are followed

SAME = 0.4  # relative changes of worth that needn't reorder anything

Table = list[list[list[tuple[float, float]]]]


def age_bin(age: float) -> int:
    return 0 if age < 1 else min(int(2 * math.log2(age)) + 1, AGES - 1)


def gap_bin(gap: float) -> int:
    """0 is for no gap."""
    return 1 if gap < 1 else min(int(gap).bit_length() + 1, GAPS - 1)


def lag_bin(age: int, gap: int) -> int:
    return 0 if gap == 0 else max(1, min(age - 2 * gap + 10, LAGS - 1))


class Use:
    """One use that is followed until the next: when it was, and the traits of what was used, one bin each."""

    __slots__ = ("gap", "over", "time", "traits")

    def __init__(self, time: float, gap: int, traits: Sequence[int]) -> None:
        self.time = time
        self.gap = gap
        self.traits = traits
        self.over = False  # used again


class Weights:
    """One weight a bin, and how much each has been moved."""

    __slots__ = ("moved", "values")

    def __init__(self, bins: int, start: float = 0.0, caution: float = 1.0) -> None:
        self.values = [start] * bins
        self.moved = [caution] * bins

    def move(self, at: int, gradient: float) -> None:
        self.moved[at] += gradient * gradient
        self.values[at] += RATE * gradient / math.sqrt(self.moved[at])


class Survival:
    """`sizes`: how many bins each trait has."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._ages = Weights(AGES, RARELY)
        self._lags = Weights(LAGS)
        self._traits = [Weights(size, caution=CAUTION) for size in sizes]
        self._followed: deque[Use] = deque()
        self._dropped = 0  # uses that left the window; numbers below count from the first ever followed
        self._passed = [0] * AGES  # by age: the first use that hasn't outlived it

    def score(self, traits: Sequence[int]) -> float:
        return sum([weights.values[at] for weights, at in zip(self._traits, traits, strict=True)])

    def row(self, traits: Sequence[int]) -> int:
        """The row of the worth table for these traits."""
        return max(0, min(int(self.score(traits) / SCORE_STEP + SCORES / 2), SCORES - 1))

    def follow(self, use: Use) -> None:
        """From now on; uses come in order of time."""
        self._followed.append(use)
        if len(self._followed) > WINDOW:
            self._followed.popleft()
            self._dropped += 1

    def again(self, use: Use, now: float) -> None:
        """What was used then is used now; counts once."""
        if not use.over:
            use.over = True
            self._learn(use, age_bin(now - use.time), 1.0)

    def advance(self, now: float) -> None:
        """Learns from what is still unused at the ages that it has outlived by now."""
        followed, dropped = self._followed, self._dropped
        end = dropped + len(followed)
        for age in range(AGES - 1):
            at, since = max(self._passed[age], dropped), now - EDGES[age + 1]
            while at < end and (use := followed[at - dropped]).time <= since:
                if not use.over:
                    self._learn(use, age, 0.0)
                at += 1
            self._passed[age] = at

    def _learn(self, use: Use, age: int, used: float) -> None:
        lag = lag_bin(age, use.gap)
        odds = self._ages.values[age] + self._lags.values[lag] + self.score(use.traits)
        gradient = used - 1 / (1 + math.exp(-odds))
        self._ages.move(age, gradient)
        self._lags.move(lag, gradient)
        for weights, at in zip(self._traits, use.traits, strict=True):
            weights.move(at, gradient)

    def worth(self) -> Table:
        """Uses per unit of time of waiting on, the best that some time to give up yields; and the age up to which that
        stays about the same. [score row, gap, age]."""
        scores = (np.arange(SCORES) - SCORES / 2 + 0.5) * SCORE_STEP
        lags = np.array([[lag_bin(age, gap) for age in range(AGES)] for gap in range(GAPS)])
        odds = np.array(self._ages.values) + np.array(self._lags.values)[lags]
        chance = 1 / (1 + np.exp(-(scores[:, None, None] + odds)))
        width = np.diff(np.array(EDGES))
        worth = np.zeros_like(chance)
        for age in range(AGES):
            ahead = chance[..., age:]
            waiting = np.cumprod(1 - ahead, axis=-1)
            before = np.concatenate([np.ones_like(ahead[..., :1]), waiting[..., :-1]], axis=-1)
            uses = np.cumsum(before * ahead, axis=-1)
            held = np.cumsum(before * (1 - ahead / 2) * width[age:], axis=-1)
            worth[..., age] = (uses / held).max(axis=-1)
        until = np.full_like(worth, math.inf)
        for age in range(AGES - 2, -1, -1):
            for later in range(AGES - 1, age, -1):
                changed = np.abs(worth[..., later] - worth[..., age]) > SAME * worth[..., age]
                until[..., age][changed] = EDGES[later]
        pairs: Table = [
            [list(zip(*ages, strict=True)) for ages in zip(*gaps, strict=True)]
            for gaps in zip(worth.tolist(), until.tolist(), strict=True)
        ]
        return pairs
