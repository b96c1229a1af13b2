"""What was compiled by content, and the masks of a vocabulary: what requests share.

Bounded: the least recently used go first. A vocabulary's masks live as long as its token space.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from palmette.runtime.grammar.automaton.masks import Masks
from palmette.runtime.grammar.protocol import TokenSpace

T = TypeVar("T")

_masks: WeakKeyDictionary[TokenSpace, Masks] = WeakKeyDictionary()
_lock = Lock()


def masks_of(space: TokenSpace) -> Masks:
    """The masks over a vocabulary, with its trie: made at the first call, a fraction of a second."""
    with _lock:
        found = _masks.get(space)
        if found is None:
            found = _masks[space] = Masks(space.vocabulary)
        return found


class Cache(Generic[T]):
    """At most `count` of what was compiled, of `most` bytes as `weigh` tells them, by a key of its content."""

    def __init__(self, count: int, most: int, weigh: Callable[[T], int]) -> None:
        self._count, self._most, self._weigh = count, most, weigh
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> T | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, compiled: T) -> None:
        """What is heavier than all that may be kept stays alone."""
        with self._lock:
            before = self._kept.pop(key, None)
            self._bytes += self._weigh(compiled) - (0 if before is None else self._weigh(before))
            self._kept[key] = compiled
            while len(self._kept) > 1 and (len(self._kept) > self._count or self._bytes > self._most):
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= self._weigh(dropped)
