"""Characters that no part of a pattern tells apart are one class; and how classes are read from UTF-8, byte by byte.

An automaton over classes is small, whatever Unicode classes the pattern uses. The bytes of a character are read by
`nodes` that all states share: from the root a byte leads to a class (a character is complete) or to a further node.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.grammar.regex.charset import LAST, CharSet

DEAD_CLASS = 0
"""The class of characters that are in no set of the pattern, and of bytes that are no UTF-8."""

ROOT = 0
"""The node between two characters."""

Intervals = tuple[tuple[int, int], ...]
"""(first code point, class), ascending, up to the next one's first; the first starts at 0."""


class Alphabet(msgspec.Struct, frozen=True):
    """`step[node, byte]` is a class where it is below `classes`, else node + classes.

    `reaches[node, class]`: the class can be read from the node on.
    """

    classes: int
    intervals: Intervals
    step: npt.NDArray[np.int32]  # [nodes, 256]
    reaches: npt.NDArray[np.bool_]  # [nodes, classes]

    @property
    def nodes(self) -> int:
        return len(self.step)

    def class_of(self, character: int) -> int:
        return _class_at(self.intervals, character)


def split(sets: Iterable[CharSet]) -> tuple[Alphabet, dict[CharSet, frozenset[int]]]:
    """The coarsest classes of characters such that each set is a union of them, and which those are."""
    bits = {chars: 1 << at for at, chars in enumerate(dict.fromkeys(sets))}
    toggles: dict[int, int] = {}
    for chars, bit in bits.items():
        for first, last in chars:
            toggles[first] = toggles.get(first, 0) ^ bit
            toggles[last + 1] = toggles.get(last + 1, 0) ^ bit
    classes = {0: DEAD_CLASS}
    members: dict[CharSet, set[int]] = {chars: set() for chars in bits}
    intervals = [(0, DEAD_CLASS)]
    signature = 0
    for point in sorted(toggles):
        if not toggles[point]:
            continue
        signature ^= toggles[point]
        if signature not in classes:
            classes[signature] = len(classes)
            for chars, bit in bits.items():
                if signature & bit:
                    members[chars].add(classes[signature])
        if intervals[-1][0] == point:
            intervals.pop()
        intervals.append((point, classes[signature]))
    return _alphabet(tuple(intervals), len(classes)), {chars: frozenset(found) for chars, found in members.items()}


def _class_at(intervals: Intervals, character: int) -> int:
    return intervals[bisect_right(intervals, (character, LAST + 1)) - 1][1]


@lru_cache(maxsize=32)
def _alphabet(intervals: Intervals, classes: int) -> Alphabet:
    return _Nodes(intervals, classes).alphabet()


class _Nodes:
    """Builds the nodes of UTF-8: equal nodes are one."""

    def __init__(self, intervals: Intervals, classes: int) -> None:
        self.intervals = intervals
        self.firsts = [first for first, _ in intervals]
        self.classes = classes
        self.rows: list[tuple[int, ...]] = [()]  # the root's row is put in last
        self.known: dict[tuple[int, ...], int] = {}
        self.uniform: dict[tuple[int, int], int] = {}

    def alphabet(self) -> Alphabet:
        root = [self.code(byte, 0, 0) for byte in range(0x80)] + [DEAD_CLASS] * 0x80
        for lead in range(0xC2, 0xE0):
            root[lead] = self.code((lead & 0x1F) << 6, 1, 0x80)
        for lead in range(0xE0, 0xF0):
            root[lead] = self.code((lead & 0x0F) << 12, 2, 0x800)
        for lead in range(0xF0, 0xF5):
            root[lead] = self.code((lead & 0x07) << 18, 3, 0x10000)
        self.rows[ROOT] = tuple(root)
        step = np.zeros((len(self.rows), 256), np.int32)
        step[ROOT] = root
        for node, row in enumerate(self.rows[1:], 1):
            step[node, 0x80:0xC0] = row
        return Alphabet(self.classes, self.intervals, step, self.reached())

    def code(self, base: int, more: int, least: int) -> int:
        """What reading up to the block of 64^more code points at `base` leads to; those below `least` are overlong."""
        last = base + 64**more - 1
        if last < least or base > LAST:
            return DEAD_CLASS
        at = bisect_right(self.firsts, base) - 1
        same = at + 1 == len(self.firsts) or self.firsts[at + 1] > last
        if more == 0:
            return self.intervals[at][1]
        plain = same and base >= least and last <= LAST
        if plain:
            class_ = self.intervals[at][1]
            if class_ == DEAD_CLASS:
                return DEAD_CLASS
            if (known := self.uniform.get((class_, more))) is not None:
                return known
        size = 64 ** (more - 1)
        code = self.node(tuple(self.code(base + part * size, more - 1, least) for part in range(64)))
        if plain:
            self.uniform[class_, more] = code
        return code

    def node(self, row: tuple[int, ...]) -> int:
        if not any(row):
            return DEAD_CLASS
        if row not in self.known:
            self.known[row] = len(self.rows)
            self.rows.append(row)
        return self.known[row] + self.classes

    def reached(self) -> npt.NDArray[np.bool_]:
        reaches = np.zeros((len(self.rows), self.classes), np.bool_)
        for node in [*range(1, len(self.rows)), ROOT]:  # a node's parts are made before it
            for code in set(self.rows[node]):
                if code < self.classes:
                    reaches[node, code] = code != DEAD_CLASS
                else:
                    reaches[node] |= reaches[code - self.classes]
        return reaches


def classes_to_ranges(intervals: Intervals, wanted: frozenset[int]) -> CharSet:
    """The characters of some classes."""
    lasts = [first - 1 for first, _ in intervals[1:]] + [LAST]
    merged: list[tuple[int, int]] = []
    for (first, class_), last in zip(intervals, lasts, strict=True):
        if class_ in wanted:
            if merged and merged[-1][1] == first - 1:
                merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
    return tuple(merged)
