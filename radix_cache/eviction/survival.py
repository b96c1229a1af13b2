"""When will something be used again? A survival model over ages, learned online; and what it is worth to wait for it.

Ages are cut into half octaves, in whatever unit the clock has. The log-odds that something unused so far is used within
the next half octave are a sum of weights: one for the age, one for the age at this tempo, one for each trait. A weight
is a mean and a variance, both moved by each observation (an extended Kalman filter with independent weights), so that
what has seldom been seen is learned at once and what is known well stays. What is still waiting counts for the ages it
has survived, so nothing waits for a verdict. Knows no nodes. Called by learned.py and duel.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from palmette.radix_cache.eviction.history import Uses
from palmette.radix_cache.eviction.queues import Worth

AGES = 44  # 0–1, 1–1.4, 1.4–2, … 2^21, in the unit of the clock
EDGES = [0.0, *(2 ** (half / 2) for half in range(AGES))]
TEMPOS = 4  # no gap known, or the last gap among the shorter, middle, longer third of gaps
BREVITIES = 2  # whether the last answer was short
PACES = TEMPOS * BREVITIES
SPAN = 4  # ages that a pace has one weight for
ROWS = 16  # scores: sums of the traits' weights, in steps
ROW_STEP = 0.4
AGE_VARIANCE, PACE_VARIANCE, TRAIT_VARIANCE = 0.3, 0.3, 0.3  # of weights before anything is known
LEAST_VARIANCE = 1e-4  # so that what has changed is learned anew
CERTAIN = 1 - 1e-4  # no chance is taken to be more: the survivors of 44 ages are still a number
RARELY = -3.5  # log-odds before anything is known: the same for each half octave, which orders as LRU does


def age_bin(age: float) -> int:
    return 0 if age < 1 else min(int(2 * math.log2(age)) + 1, AGES - 1)


class Weights:
    """One weight a bin: what it is thought to be, and how far off that may be."""

    __slots__ = ("means", "variances")

    def __init__(self, bins: int, variance: float, mean: float = 0.0) -> None:
        self.means = [mean] * bins
        self.variances = [variance] * bins

    def move(self, at: int, error: float, certainty: float) -> None:
        variance = self.variances[at]
        self.means[at] += variance * error
        self.variances[at] = max(variance - certainty * variance * variance, LEAST_VARIANCE)


class Tempos:
    """Whether a gap is among the shorter, middle or longer third of all (1, 2, 3), or isn't known (0).

    The thirds part where stochastic steps of the gaps' logarithms lead.
    """

    def __init__(self) -> None:
        self._parts: list[float] | None = None

    def of(self, gap: float | None) -> int:
        if gap is None or self._parts is None:
            return 0
        size = math.log2(max(gap, 1e-3))
        return 1 + (size >= self._parts[0]) + (size >= self._parts[1])

    def learn(self, gap: float | None) -> int:
        """The same, and the gap counts."""
        if gap is not None:
            size = math.log2(max(gap, 1e-3))
            parts = self._parts or [size, size]
            steps = (0.1 * (share - (size < part)) for share, part in zip((1 / 3, 2 / 3), parts, strict=True))
            self._parts = [part + step for part, step in zip(parts, steps, strict=True)]
        return self.of(gap)


class Survival:
    """`bins`: how many the `traits` traits have together. A class is a row of scores and a pace, as queues.py has
    classes."""

    count = ROWS * PACES

    def __init__(self, bins: int, traits: int) -> None:
        self.version = 0
        self._ages = Weights(AGES, AGE_VARIANCE, RARELY)
        self._paces = [Weights(AGES // SPAN, PACE_VARIANCE) for _ in range(PACES)]
        self.tempos = Tempos()
        self._traits = Weights(bins, TRAIT_VARIANCE)
        self.uses = Uses(traits)
        self._passed = [0] * AGES  # by age: the first use that hasn't outlived it
        self.renew()

    def score(self, traits: Sequence[int]) -> float:
        return sum(map(self._traits.means.__getitem__, traits))

    def pace_of(self, gap: float | None, brief: bool) -> int:
        return self.tempos.of(gap) + TEMPOS * brief

    def class_of(self, score: float, pace: int) -> int:
        return max(0, min(int(score / ROW_STEP + ROWS / 2), ROWS - 1)) * PACES + pace

    def again(self, number: int, now: float) -> None:
        """What was used then, and not since, is used now."""
        self._learn(number, age_bin(now - self.uses.time(number)), 1.0)
        self.uses.close(number)

    def advance(self, now: float) -> None:
        """Learns from what is still unused at the ages that it has outlived by now."""
        uses, begin, end = self.uses, self.uses.begin, self.uses.end
        for age in range(AGES - 1):
            at, since = max(self._passed[age], begin), now - EDGES[age + 1]
            if begin == end or uses.time(begin) > since:
                break
            while at < end and uses.time(at) <= since:
                if uses.waits(at):
                    self._learn(at, age, 0.0)
                at += 1
            self._passed[age] = at

    def _learn(self, number: int, age: int, used: float) -> None:
        ages, pace, span = self._ages, self._paces[self.uses.pace(number)], age // SPAN
        traits = self.uses.traits(number)
        odds = ages.means[age] + pace.means[span] + self.score(traits)
        variance = ages.variances[age] + pace.variances[span] + sum(map(self._traits.variances.__getitem__, traits))
        chance = 1 / (1 + math.exp(-odds))
        doubt = chance * (1 - chance)
        certainty = doubt / (1 + doubt * variance)
        error = (used - chance) / (1 + doubt * variance)
        ages.move(age, error, certainty)
        pace.move(span, error, certainty)
        for at in traits:
            self._traits.move(at, error, certainty)

    def worth(self, of: int, used: float, now: float) -> Worth:
        """Uses per unit of time of waiting on, the best that some time to give up yields."""
        age = age_bin(now - used)
        return Worth(self._worth[of][age], used + EDGES[age + 1])

    def renew(self) -> None:
        """Finds the worth of all classes anew from what has been learned."""
        self.version += 1
        scores = (np.arange(ROWS) - ROWS / 2 + 0.5) * ROW_STEP
        paces = np.array([weights.means for weights in self._paces]).repeat(SPAN, axis=1)
        ages = np.array(self._ages.means) + paces
        chance = (1 / (1 + np.exp(-(scores[:, None, None] + ages)))).reshape(self.count, AGES)
        self._worth: list[list[float]] = _best_rates(chance).tolist()


def _best_rates(chance: np.ndarray) -> np.ndarray:
    """[class, age] from the chances of a use in each half octave [class, age]: the Gittins index at each age, raised
    to the least that first rises, then falls."""
    used = np.minimum(chance.T, CERTAIN)
    alive = np.ones((AGES + 1, len(chance)))
    np.cumprod(1 - used, axis=0, out=alive[1:])
    held = alive[:-1] * (1 - used / 2) * np.diff(np.array(EDGES))[:, None]
    ahead = np.zeros_like(alive)  # what will be held from an age on: summed from behind, where the terms are smallest
    ahead[:-1] = held[::-1].cumsum(axis=0)[::-1]
    rates = np.empty_like(used)
    for age in range(AGES):
        ((alive[age] - alive[age + 1 :]) / (ahead[age] - ahead[age + 1 :])).max(axis=0, out=rates[age])
    rising, falling = np.maximum.accumulate(rates), np.maximum.accumulate(rates[::-1])[::-1]
    return np.minimum(rising, falling).T
