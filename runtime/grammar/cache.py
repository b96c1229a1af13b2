"""What was compiled by content, and the masks of a vocabulary: what requests share.

Bounded: the least recently used go first. A vocabulary's masks live as long as its token space.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from palmette.runtime.grammar.masks import Masks
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
    """At most `count` of what was compiled, by a key of its content."""

    def __init__(self, count: int = 256) -> None:
        self._count = count
        self._kept: OrderedDict[str, T] = OrderedDict()
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
        with self._lock:
            self._kept[key] = compiled
            self._kept.move_to_end(key)
            if len(self._kept) > self._count:
                self._kept.popitem(last=False)
