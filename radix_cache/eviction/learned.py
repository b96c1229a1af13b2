"""The eviction policy that learns from the trace itself when pages are used again: hit density, estimated online.

A page is worth the hits per second of keeping it. For a leaf that is the best ratio, over all times to give it up, of
the chance that it is used by then to the time it is held until then (a Gittins index; "hit density" in Beckmann, Chen
and Cidon, "LHD: improving cache hit rate by maximizing hit density", NSDI 2018). The chances come from survival.py.
Of each request one node of its path, drawn by its pages, is followed until its next use, also when it is evicted
meanwhile: a bounded number of evicted nodes is remembered by place and first page. Called by order and tree only.
"""

from __future__ import annotations

import math
from random import Random

from palmette.radix_cache.eviction.order import FOREVER, EvictionPolicy, Rank
from palmette.radix_cache.eviction.survival import WINDOW, Survival, Use, age_bin, gap_bin
from palmette.radix_cache.node import Node
from palmette.runtime.messages.tokens import TOKEN_BYTES

COUNTS = 12
OCTAVES = 24
LENGTHS = 2 * OCTAVES
TRAITS = (COUNTS, COUNTS, LENGTHS, LENGTHS, LENGTHS, COUNTS * OCTAVES, OCTAVES * OCTAVES, COUNTS * COUNTS, OCTAVES + 1)
SIBLINGS = 3  # a parent with more children is shared by strangers and tells nothing about a new child
END_RATE = 0.02
TABLE_EVERY = (64, 512)  # requests between two worth tables, at first and at most


class Past:
    """What is remembered of a node while it lives, and of an evicted one for a while."""

    __slots__ = ("below", "ends", "fresh", "gap", "new", "row", "turn", "use", "used", "uses")

    def __init__(self, uses: int = 0, turn: int = 0, gap: int = 0, new: int = 0) -> None:
        self.uses = uses
        self.turn = turn  # uses of the path, for a node that continues it
        self.gap = gap  # bin of the time between the last two uses
        self.new = new  # tokens that the last request through here added
        self.row: int | None = None  # of the worth table; None: not known since the traits changed
        self.used = 0.0  # evicted ones: when last
        self.use: Use | None = None
        self.below: Use | None = None  # followed use of what was evicted below
        self.fresh = False  # grown by a request that hasn't finished
        self.ends = False  # a request ended with the node's last page, which nobody has used since

    def copy(self) -> Past:
        return Past(self.uses, self.turn, self.gap, self.new)


class HitDensity(EvictionPolicy):
    """Lowest hit density first. It starts as LRU, and learns within some hundred requests."""

    learns = True

    def __init__(self, seed: int = 0) -> None:
        self._survival = Survival(TRAITS)
        self._worth = self._survival.worth()
        self._random = Random(seed)
        self._requests = 0
        self._next_table = TABLE_EVERY[0]
        self._evicted: dict[tuple[int, int], Past] = {}
        self._end_used = 0.5  # how often a path that is used again is used to the last page of the request before

    def rank(self, node: Node, now: float) -> Rank:
        past = _past(node)
        if past.row is None:
            past.row = self._survival.row(_traits(node, past))
        worth, age = self._worth[past.row][past.gap][age_bin(now - node.last_used)]
        until = node.last_used + age
        return Rank(worth * self._end_used if past.ends else worth, node.last_used, until if until > now else FOREVER)

    def portion(self, node: Node) -> int:
        return 1 if _past(node).ends else len(node.pages)

    def used(self, node: Node, now: float) -> None:
        if node.parent is None:
            return
        past = _past(node)
        past.row = None
        past.uses += 1
        past.turn += 1
        past.gap = gap_bin(now - node.last_used)
        if past.ends:
            past.ends = False
            self._end_used += (1 - self._end_used) * END_RATE
        if past.use is not None:
            self._survival.again(past.use, now)
            past.use = None

    def split(self, upper: Node, lower: Node) -> None:
        below = _past(lower)
        below.row = None
        upper.past = above = below.copy()
        above.use, below.use = below.use, None
        if below.ends and len(lower.pages) == len(upper.pages) + 1:
            self._end_used -= self._end_used * END_RATE

    def added(self, node: Node, at: int, now: float) -> None:
        past = _past(node)
        past.new = (len(node.key) - at) // TOKEN_BYTES
        past.fresh = True
        past.row = None
        before = self._evicted.pop(_place(node, at), None)
        if before is not None:
            if before.use is not None:
                self._survival.again(before.use, now)
            if at == 0:
                past.uses, past.turn, past.gap = before.uses + 1, before.turn + 1, gap_bin(now - before.used)
        elif at == 0 and node.parent is not None and len(node.parent.children) <= SIBLINGS:
            above = _past(node.parent)
            past.turn, past.gap = above.turn, above.gap

    def trimmed(self, node: Node, at: int, now: float) -> None:
        past = _past(node)
        past.ends = False
        gone = past.copy()
        gone.used = node.last_used
        gone.use = past.use if past.use is not None and not past.use.over else past.below
        if at == 0 and gone.use is not None and node.parent is not None:
            _past(node.parent).below = gone.use
        self._evicted[_place(node, at)] = gone
        if len(self._evicted) > WINDOW:
            del self._evicted[next(iter(self._evicted))]

    def finished(self, node: Node, now: float) -> None:
        path = [step for step in node.path() if step.parent is not None]
        if not path:
            return
        end = _past(node)
        end.ends, end.fresh = end.fresh and not node.children, False
        for step in path:
            each = _past(step)
            each.new, each.row = end.new, None
        chosen = self._random.choices(path, [len(step.pages) for step in path])[0]
        past = _past(chosen)
        past.use = Use(now, past.gap, _traits(chosen, past))
        self._survival.advance(now)
        self._survival.follow(past.use)
        self._requests += 1
        if self._requests >= self._next_table:
            self._next_table += max(TABLE_EVERY[0], min(self._requests // 8, TABLE_EVERY[1]))
            self._worth = self._survival.worth()


def _past(node: Node) -> Past:
    past: Past | None = node.past
    if past is None:
        past = node.past = Past()
    return past


def _traits(node: Node, past: Past) -> tuple[int, ...]:
    own = len(node.key) // TOKEN_BYTES
    total = own + _bytes_above(node) // TOKEN_BYTES
    uses, turn, size = _count_bin(past.uses), _count_bin(past.turn), _octave(total)
    return (
        uses,
        turn,
        _length_bin(total),
        _length_bin(own),
        _length_bin(past.new),
        turn * OCTAVES + size,
        _octave(past.new) * OCTAVES + size,
        uses * COUNTS + turn,
        past.gap,
    )


def _place(node: Node, at: int) -> tuple[int, int]:
    """Depth and content of the page at byte `at` of the node's key: the same for what comes back there."""
    page = len(node.key) // len(node.pages)
    return _bytes_above(node) + at, hash(node.key[at : at + page])


def _bytes_above(node: Node) -> int:
    above, parent = 0, node.parent
    while parent is not None:
        above += len(parent.key)
        parent = parent.parent
    return above


def _count_bin(uses: int) -> int:
    return uses if uses < 5 else min(uses.bit_length() + 2, COUNTS - 1)


def _octave(tokens: int) -> int:
    return min(tokens.bit_length(), OCTAVES - 1)


def _length_bin(tokens: int) -> int:
    """Half octaves; 0: nothing."""
    return 0 if tokens < 1 else min(int(2 * math.log2(tokens)) + 1, LENGTHS - 1)
