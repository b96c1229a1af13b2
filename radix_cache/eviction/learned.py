"""The eviction policy that learns from the trace itself when pages are used again: hit density, estimated online.

A page is worth the hits per second of keeping it. For a leaf that is the best ratio, over all times to give it up, of
the chance that it is used by then to the time it is held until then (a Gittins index; "hit density" in Beckmann, Chen
and Cidon, "LHD: improving cache hit rate by maximizing hit density", NSDI 2018). The chances come from survival.py.
Of each request one node of its path, drawn by its pages, is followed until its next use, also when it is evicted
meanwhile: a bounded number of evicted nodes is remembered by place and first page. Called by order and tree only.
"""

from __future__ import annotations

import math
from itertools import accumulate
from random import Random
from zlib import crc32

from palmette.radix_cache.eviction.duel import Duel
from palmette.radix_cache.eviction.history import Place, Places
from palmette.radix_cache.eviction.order import EvictionPolicy, Rank
from palmette.radix_cache.eviction.survival import Survival
from palmette.radix_cache.node import Node
from palmette.runtime.messages.tokens import TOKEN_BYTES

COUNTS = 12
OCTAVES = 24
LENGTHS = 2 * OCTAVES
TRAITS = (LENGTHS, LENGTHS, LENGTHS, COUNTS * OCTAVES, OCTAVES * OCTAVES, COUNTS * COUNTS, OCTAVES + 1, LENGTHS + 1)
TOTAL, OWN, NEW, TURN_TOTAL, NEW_TOTAL, USES_TURN, GAP, ANSWER, BINS = accumulate(
    TRAITS, initial=0
)  # where their bins begin
SIBLINGS = 3  # a parent with more children is shared by strangers and tells nothing about a new child
BRIEF = 64  # tokens: a shorter answer is a value, a choice, a verdict rather than part of a conversation
END_RATE = 0.02
END_PAGES = 64  # in a longer leaf the last page is too small a part to be ranked apart
TABLE_EVERY = (64, 512)  # requests between two worth tables, at first and at most


class Past:
    """What is remembered of a node while it lives. Lengths are half octaves, small numbers that cost no memory."""

    __slots__ = ("answer", "below", "class_", "ends", "fresh", "gap", "new", "reach", "start", "turn", "use", "uses")

    def __init__(self, uses: int = 0, turn: int = 0, gap: float | None = None, new: int = 0, answer: int = 0) -> None:
        self.uses = uses
        self.turn = turn  # uses of the path, for a node that continues it
        self.gap = gap  # between the last two uses, where there were two
        self.new = new  # length of what the last request through here added
        self.answer = answer  # 1 + length of what it generated; 0: not known
        self.reach = 0  # where in the path what has been evicted here or below ended, in bytes
        self.start = 0  # where in the path the node's key starts, in bytes
        self.class_: int | None = None  # None: not known since the traits changed
        self.use: int | None = None  # the followed one
        self.below: int | None = None  # followed use of what was evicted below
        self.fresh = False  # grown by a request that hasn't finished
        self.ends = False  # a request ended with the node's last page, which nobody has used since

    def copy(self) -> Past:
        return Past(self.uses, self.turn, self.gap, self.new, self.answer)

    @property
    def brief(self) -> bool:
        return 0 < self.answer <= BRIEF_LENGTH


class HitDensity(EvictionPolicy):
    """Lowest hit density first. It starts as LRU, and learns within some hundred requests."""

    def __init__(self, seed: int = 0) -> None:
        self.learner = self
        self._survival = Survival(BINS, len(TRAITS))
        self._duel = self.classes = Duel(self._survival)
        self._cached = 0  # bytes of keys in the tree
        self._full = math.inf  # how many there were at the last eviction
        self._random = Random(seed)
        self._requests = 0
        self._next_table = TABLE_EVERY[0]
        self._evicted = Places()
        self._end_used = 0.5  # how often a path that is used again is used to the last page of the request before

    def rank(self, node: Node, now: float) -> Rank:
        worth, until = self._duel.worth(self.class_of(node, now), node.last_used, now)
        return Rank(worth, node.last_used, until)

    def class_of(self, node: Node, now: float) -> int:
        past = _past(node)
        if past.class_ is None:
            score = self._survival.score(_traits(node, past))
            if past.ends:
                score += math.log(self._end_used)
            past.class_ = self._survival.class_of(score, self._survival.pace_of(past.gap, past.brief))
        return past.class_

    def portion(self, node: Node, spare: int) -> int:
        return 1 if node.past is not None and node.past.ends and self._duel.follows_learned else spare

    def used(self, node: Node, now: float) -> None:
        past: Past | None = node.past
        if past is None:
            past = node.past = Past()
        past.uses += 1
        past.turn += 1
        past.gap = now - node.last_used
        if past.ends:
            past.ends = False
            self._end_used += (1 - self._end_used) * END_RATE
        if past.use is not None:
            self._again(past.use, now)
            past.use = None

    def split(self, upper: Node, lower: Node) -> None:
        below = _past(lower)  # which stays in the class, and the queue, where it is
        upper.past = above = below.copy()
        above.start = below.start
        below.start += len(upper.key)
        above.use, below.use = below.use, None
        if below.ends and len(lower.pages) == len(upper.pages) + 1:
            self._end_used -= self._end_used * END_RATE

    def added(self, node: Node, at: int, now: float) -> None:
        past, parent = _past(node), node.parent
        self._cached += len(node.key) - at
        past.fresh = True
        past.class_ = None
        known = max(past.start + at, past.reach)
        if at == 0 and parent is not None and parent.parent is not None:
            above = _past(parent)
            known = past.start = above.start + len(parent.key)
            if len(parent.children) <= SIBLINGS:
                past.turn, past.gap, known = above.turn, above.gap, max(known, above.reach)
        before = self._evicted.take(_place(node, past)) if at == 0 else None
        if before is not None:
            if before.use is not None:
                self._again(before.use, now)
            past.uses, past.turn, past.gap = before.uses + 1, before.turn + 1, now - before.last_used
            known = max(known, before.reach)
        past.new = _length_bin(max(0, past.start + len(node.key) - known) // TOKEN_BYTES)

    def trimmed(self, node: Node, at: int, now: float) -> None:
        past: Past = node.past or _past(node)
        self._full = self._cached
        self._cached -= len(node.key) - at
        if past.ends:
            past.ends, past.class_ = False, None
        past.reach = max(past.reach, past.start + len(node.key))
        if at:
            return
        if past.use is None or not self._survival.uses.waits(past.use):
            past.use = past.below
        parent = node.parent
        if parent is not None and parent.parent is not None:
            above = _past(parent)
            if above.reach < past.reach:
                above.reach = past.reach
            if past.use is not None:
                above.below = past.use
        self._evicted.keep(_place(node, past), Place(node.last_used, past.reach, past.uses, past.turn, past.use))

    def recounted(self, size: int) -> None:
        self._cached = size

    def finished(self, node: Node, now: float, generated: int | None) -> None:
        path = [step for step in node.path() if step.parent is not None]
        if not path:
            return
        end = _past(node)
        end.ends, end.fresh = end.fresh and not node.children and len(node.pages) <= END_PAGES, False
        answer = 0 if generated is None else 1 + _length_bin(generated)
        for step in path:
            each = _past(step)
            each.new, each.answer, each.class_ = end.new, answer, None
        chosen = self._random.choices(path, [len(step.pages) for step in path])[0]
        past = _past(chosen)
        traits = _traits(chosen, past)
        self._survival.tempos.learn(past.gap)
        pace = self._survival.pace_of(past.gap, past.brief)
        self._survival.advance(now)
        past.use = self._survival.uses.add(now, pace, traits)
        size = end.start + len(node.key)
        self._duel.enter(past.use, now, size, self._survival.class_of(self._survival.score(traits), pace))
        self._duel.shrink(self._full, now)
        self._requests += 1
        if self._requests >= self._next_table:
            self._next_table += max(TABLE_EVERY[0], min(self._requests // 8, TABLE_EVERY[1]))
            self._survival.renew()
            self._duel.version += 1

    def _again(self, use: int, now: float) -> None:
        if self._survival.uses.waits(use):
            self._duel.again(use)
            self._survival.again(use, now)


def _past(node: Node) -> Past:
    past: Past | None = node.past
    if past is None:
        past = node.past = Past()
    return past


def _traits(node: Node, past: Past) -> tuple[int, ...]:
    """The bins that describe the node, one a trait."""
    own = len(node.key) // TOKEN_BYTES
    total, new = _length_bin(own + past.start // TOKEN_BYTES), past.new
    size, turn = (total + 1) // 2, _count_bin(past.turn)  # an octave is two bins of lengths
    return (
        TOTAL + total,
        OWN + _length_bin(own),
        NEW + new,
        TURN_TOTAL + turn * OCTAVES + size,
        NEW_TOTAL + (new + 1) // 2 * OCTAVES + size,
        USES_TURN + _count_bin(past.uses) * COUNTS + turn,
        GAP + (0 if past.gap is None else (_length_bin(int(past.gap)) + 1) // 2 + 1),
        ANSWER + past.answer,
    )


def _place(node: Node, past: Past) -> int:
    """Depth and content of the node's first page: the same for what comes back there."""
    return past.start << 32 | crc32(node.key[: len(node.key) // len(node.pages)])


def _count_bin(uses: int) -> int:
    return uses if uses < 5 else min(uses.bit_length() + 2, COUNTS - 1)


def _length_bin(length: int) -> int:
    """Half octaves; 0: nothing."""
    if length < len(SHORT_LENGTHS):
        return SHORT_LENGTHS[length]
    bits = length.bit_length()
    return 2 * bits - (length * length < 1 << (2 * bits - 1)) if bits < OCTAVES else LENGTHS - 2


SHORT_LENGTHS = bytes(int(2 * math.log2(length)) + 1 if length else 0 for length in range(1 << 14))
BRIEF_LENGTH = _length_bin(BRIEF)
