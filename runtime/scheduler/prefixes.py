"""The prefixes that waiting sequences have in common: their keys, sorted, and how much neighbours share.

Knows tokens only: no tree, no pages. Used by the policies that look at prefixes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from palmette.radix_cache.key import common_tokens
from palmette.runtime.messages.tokens import count
from palmette.runtime.scheduler.sequence import Sequence

Entry = tuple[str, bytes, int, Sequence]  # namespace, key, order of arrival


class WaitingPrefixes:
    """Sorted by namespace and key, so that all that share a prefix stand together.

    `_common[i]`: tokens that entry i shares with the one before; none across namespaces. What an entry shares with
    any other is the least of those between, so that a question costs one comparison of keys, the rest integers.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._common: list[int] = []
        self._keys: dict[Sequence, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, sequence: Sequence) -> None:
        key = sequence.key(sequence.matchable)
        entry = (sequence.namespace, key, sequence.order, sequence)
        at = bisect_left(self._entries, entry)
        self._keys[sequence] = key
        self._entries.insert(at, entry)
        self._common.insert(at, self._shared(at - 1, at))
        if at + 1 < len(self._entries):
            self._common[at + 1] = self._shared(at, at + 1)

    def remove(self, sequence: Sequence) -> None:
        at = bisect_left(self._entries, (sequence.namespace, self._keys.pop(sequence), sequence.order, sequence))
        del self._entries[at]
        common = self._common.pop(at)
        if at < len(self._common):
            self._common[at] = min(common, self._common[at])

    def sharing(self, namespace: str, key: bytes, beyond: int) -> Iterator[tuple[Sequence, int]]:
        """Those that share more than `beyond` leading tokens with `key`, and how many."""
        entries, common = self._entries, self._common
        middle = bisect_left(entries, (namespace, key))
        for first, step in ((middle, 1), (middle - 1, -1)):
            if not 0 <= first < len(entries) or entries[first][0] != namespace:
                continue
            at, shared = first, common_tokens(entries[first][1], key)
            while shared > beyond:
                yield entries[at][3], shared
                at += step
                if not 0 <= at < len(entries):
                    break
                shared = min(shared, common[at] if step > 0 else common[at + 1])

    def depth_first(self, last: tuple[str, bytes] | None) -> list[Sequence]:
        """All of them, depth first over the tree of their prefixes: at each branching the branch that `last`, the
        (namespace, key) served last, lies in; then those with more sequences below; then the earliest arrived."""
        root = _Branch(0)
        path = [root]
        at_last = bisect_left(self._entries, last) if last is not None else None
        for index, (namespace, key, order, sequence) in enumerate(self._entries):
            shared = self._common[index]
            while path[-1].depth > shared:
                closed = path.pop()
                if path[-1].depth < shared:
                    path.append(_Branch(shared))
                path[-1].take(closed)
            leaf = _Branch(count(key), weight=1, first=order, sequence=sequence)
            if last is not None and at_last is not None and namespace == last[0] and abs(index - at_last) <= 1:
                leaf.warm = common_tokens(key, last[1])
            if leaf.depth > path[-1].depth:
                path.append(leaf)
            else:
                path[-1].take(leaf)
        while len(path) > 1:
            closed = path.pop()
            path[-1].take(closed)
        return list(root.visit())

    def _shared(self, first: int, second: int) -> int:
        if first < 0:
            return 0
        one, other = self._entries[first], self._entries[second]
        return common_tokens(one[1], other[1]) if one[0] == other[0] else 0


@dataclass(slots=True)
class _Branch:
    """A node of the tree of waiting prefixes. `warm`: tokens of the best it shares with what was served last."""

    depth: int
    weight: int = 0
    first: float = math.inf
    warm: int = 0
    sequence: Sequence | None = None
    below: list[_Branch] = field(default_factory=list)

    def take(self, branch: _Branch) -> None:
        self.below.append(branch)
        self.weight += branch.weight
        self.first = min(self.first, branch.first)
        self.warm = max(self.warm, branch.warm)

    def visit(self) -> Iterator[Sequence]:
        """A stack in place of recursion: chats nest as deeply as they have turns."""
        stack = [self]
        while stack:
            branch = stack.pop()
            if branch.sequence is not None:
                yield branch.sequence
            depth = branch.depth  # one branch at most has more in common with the last one
            stack += sorted(branch.below, key=lambda each: (each.warm > depth, each.weight, -each.first))
