"""radix_cache.eviction.duel: the better of two orders is found and followed, in bounded memory."""

from __future__ import annotations

import math
from collections import deque

from palmette.radix_cache.eviction.duel import SAMPLE, Duel
from palmette.radix_cache.eviction.queues import Worth

GOOD, BAD = 1, 0


class Fixed:
    """Class 1 is worth more than class 0, whatever the age."""

    count = 2
    version = 1

    def worth(self, of: int, used: float, now: float) -> Worth:
        return Worth(float(of), math.inf)


def play(duel: Duel, start: int, again: int, after: int) -> None:
    """400 uses of the two classes in turn, in a cache of 12; those of class `again` are used again `after` later."""
    for now in range(start, start + 400):
        if now - after >= start and (now - after) % 2 == again:
            duel.again(now - after)
        duel.enter(now, now, 1, now % 2)
        duel.shrink(12.0, now)


def test_what_hits_more_is_followed_and_left_when_it_no_longer_does() -> None:
    duel = Duel(Fixed())
    assert not duel.follows_learned
    assert duel.worth(GOOD, 1.0, 9.0).value < duel.worth(BAD, 5.0, 9.0).value
    play(duel, 0, GOOD, 20)  # the last twelve uses are not enough, twelve of the good class are
    assert duel.follows_learned
    assert duel.version == 1
    assert duel.worth(GOOD, 1.0, 9.0).value > duel.worth(BAD, 5.0, 9.0).value
    play(duel, 400, BAD, 6)
    assert not duel.follows_learned


def test_a_sample_stands_for_what_is_too_many() -> None:
    duel = Duel(Fixed())
    for now in range(8 * SAMPLE):
        duel.enter(now, now, 1, now % 2)
        duel.shrink(math.inf, now)
    assert SAMPLE / 4 < len(duel._recent) <= SAMPLE
    assert duel._queues.entries <= 4 * SAMPLE
    assert len(duel._queues.live()) == len(duel._recent)


def test_behind_one_that_stays_others_come_and_go() -> None:
    """Few that wait are all sampled, however many there were."""
    duel = Duel(Fixed())
    waiting: deque[int] = deque()
    duel.enter(0, 0.0, 1, GOOD)
    for now in range(1, 8 * SAMPLE):
        duel.enter(now, now, 1, now % 2)
        waiting.append(now)
        if len(waiting) > 50:
            duel.again(waiting.popleft())
        duel.shrink(math.inf, now)
        assert len(duel._recent) <= 2 * SAMPLE
    assert duel._share == 1
    assert len(duel._queues.live()) == len(duel._held) == 51
    assert duel._queues.entries <= 4 * SAMPLE
