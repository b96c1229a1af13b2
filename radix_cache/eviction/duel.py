"""Does what has been learned beat recency? Two caches in miniature run beside the real one, and the better is followed.

They hold uses instead of pages: one by recency, one by classes, each as large as the cache. A use that is used again is
a hit where it is still held. The one that has hit more lately is followed; it changes only when the other is ahead by
some part of what chance explains, since a cache that turns back and forth has the worse of both. Beyond SAMPLE uses, a
part stands for all. Called by learned.py only.
"""

from __future__ import annotations

import math
from collections import deque

from palmette.radix_cache.eviction.queues import Classes, Queues, Worth

GOLDEN = (5**0.5 - 1) / 2
SAMPLE = 4096  # uses that each miniature holds at most
FADE = 0.999  # of what is known, with each use that the two treat differently
AHEAD = 0.5  # standard deviations
STEP_DOWN = -1.5
DOUBT = 8  # differences that the first are weighed against


class Held:
    """A use that one or both of the miniatures hold. Its number is its ticket, as long as the classes hold it."""

    __slots__ = ("last_used", "number", "recent", "size", "ticket")

    def __init__(self, number: int, time: float, size: float) -> None:
        self.number = number
        self.last_used = time
        self.size = size
        self.recent = True  # held by recency
        self.ticket: int | None = number  # held by classes

    @property
    def lot(self) -> float:
        """From 0 to 1, evenly: whether it is in the sample."""
        return self.number * GOLDEN % 1


class Duel:
    """The classes to order a cache by: those given, or recency for all.

    Sizes are in whatever unit, the same for uses and capacity.
    """

    def __init__(self, learned: Classes) -> None:
        self._learned = learned
        self.count = learned.count
        self.version = 0  # whoever changes what has been learned raises it
        self.follows_learned = False
        self._ahead = 0.0  # size hit by what has been learned less size hit by recency
        self._noise = 0.0  # sum of squares of its steps
        self._share = 1.0  # of uses that the miniatures hold
        self._held: dict[int, Held] = {}  # by number
        self._recent: deque[Held] = deque()  # those that are no longer held too, until they stand first
        self._waiting = 0  # that recency holds
        self._queues: Queues[Held] = Queues(learned)
        self._sizes = [0.0, 0.0]  # by recency, by classes

    def worth(self, of: int, used: float, now: float) -> Worth:
        return self._learned.worth(of, used, now) if self.follows_learned else Worth(used, math.inf)

    def enter(self, number: int, time: float, size: float, of: int) -> None:
        """A use begins to wait; uses come in order of time, with rising numbers."""
        use = Held(number, time, size)
        if use.lot >= self._share:
            return
        self._held[number] = use
        self._recent.append(use)
        self._waiting += 1
        self._queues.push(of, use, number)
        self._sizes[0] += size
        self._sizes[1] += size

    def again(self, number: int) -> None:
        """What was used then is used now."""
        use = self._held.get(number)
        if use is None:
            return
        step = use.size * ((use.ticket is not None) - use.recent)
        self._leave(use)
        if not step:
            return
        self._ahead = FADE * self._ahead + step
        self._noise = FADE * self._noise + step * step
        lead = self._ahead / math.sqrt(self._noise + DOUBT * step * step)
        if lead > AHEAD if not self.follows_learned else lead < STEP_DOWN:
            self.follows_learned = not self.follows_learned
            self.version += 1

    def shrink(self, capacity: float, now: float) -> None:
        """Both miniatures give up uses until they are no larger than the cache."""
        room = capacity * self._share
        recent = self._recent
        while recent and (self._sizes[0] > room or not recent[0].recent):
            self._forget_recent(recent.popleft())
        while self._sizes[1] > room and (least := self._queues.first(now)) is not None:
            self._forget_learned(least)
        if self._queues.entries > 4 * SAMPLE:
            self._queues.compact()
        crowded = self._waiting > SAMPLE
        if crowded:
            self._share /= 2
            for use in recent:
                if use.lot >= self._share:
                    self._leave(use)
        if crowded or len(recent) > 2 * SAMPLE:  # behind one that stays others come and go
            self._recent = deque(use for use in recent if use.recent)

    def _leave(self, use: Held) -> None:
        self._forget_recent(use)
        self._forget_learned(use)

    def _forget_recent(self, use: Held) -> None:
        if use.recent:
            use.recent = False
            self._waiting -= 1
            self._sizes[0] -= use.size
            if use.ticket is None:
                del self._held[use.number]

    def _forget_learned(self, use: Held) -> None:
        if use.ticket is not None:
            use.ticket = None
            self._sizes[1] -= use.size
            if not use.recent:
                del self._held[use.number]
