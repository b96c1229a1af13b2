"""Texts whose order doesn't matter (`any_order`), put into one under which the programs of a batch begin alike for
longer. Pure; the states ask it for each group that they write, batches.py makes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Group = tuple[str, ...]
_Piece = tuple[str, int]
"""A text, and how many of the same stand before it in its group."""


class Arranges(Protocol):
    """What decides the order of a group's texts."""

    def arranged(self, group: Group) -> Group: ...


class Collected:
    """Takes groups down as they are written, in their own order."""

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def arranged(self, group: Group) -> Group:
        self.groups.append(group)
        return group


@dataclass(frozen=True, slots=True)
class Reordered:
    """What `run_batch(reorder=True)` did: of how many groups it changed the order, and how many of their characters
    stand where a group before has the same from its beginning on, as they were written and as they were put."""

    groups: int
    changed: int
    shared_before: int
    shared_after: int

    def __str__(self) -> str:
        return (
            f"{self.changed} of {self.groups} groups were put into another order;"
            f" {self.shared_after} instead of {self.shared_before} of their characters are shared"
        )


class Ordering:
    """Orders for known groups; another one stays as it is."""

    def __init__(self, groups: Sequence[Group]) -> None:
        distinct = list(dict.fromkeys(groups))
        times = Counter(groups)
        arranged = _arranged([_pieces(group) for group in distinct], [times[group] for group in distinct])
        self._order = dict(zip(distinct, (tuple(text for text, _ in each) for each in arranged), strict=True))
        after = [self._order[group] for group in groups]
        self.report = Reordered(
            groups=len(groups),
            changed=sum(one != other for one, other in zip(groups, after, strict=True)),
            shared_before=shared_characters(groups),
            shared_after=shared_characters(after),
        )

    def arranged(self, group: Group) -> Group:
        return self._order.get(group, group)


def shared_characters(groups: Sequence[Group]) -> int:
    """Characters in texts up to which a group before is the same from its beginning on."""
    seen: set[Group] = set()
    shared = 0
    for group in groups:
        for end in range(1, len(group) + 1):
            if group[:end] in seen:
                shared += len(group[end - 1])
            seen.add(group[:end])
    return shared


def _pieces(group: Group) -> list[_Piece]:
    before: Counter[str] = Counter()
    pieces = []
    for text in group:
        pieces.append((text, before[text]))
        before[text] += 1
    return pieces


def _arranged(groups: Sequence[list[_Piece]], times: Sequence[int]) -> list[list[_Piece]]:
    """Greedy, as a prefix tree of frequent sets is built: what saves most stands first in all that have it, and so on
    within these; then the others."""
    done: list[list[_Piece]] = [[] for _ in groups]
    left = [dict.fromkeys(group) for group in groups]
    waiting = [list(range(len(groups)))]  # of groups that are alike so far
    while waiting:
        members = waiting.pop()
        saved: Counter[_Piece] = Counter()
        for member in members:
            for piece in left[member]:
                saved[piece] += times[member]
        best = max(saved, key=lambda piece: (saved[piece] - 1) * len(piece[0]), default=None)
        if best is None or len(members) == 1 or saved[best] < 2:
            for member in members:
                done[member] += left[member]
            continue
        having = [member for member in members if best in left[member]]
        others = [member for member in members if best not in left[member]]
        for member in having:
            del left[member][best]
            done[member].append(best)
        waiting += [each for each in (others, having) if each]
    return done
