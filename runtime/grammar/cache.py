"""Compiled grammars by content, and the masks of a vocabulary: what requests share.

Bounded: the least recently used grammars go first. A vocabulary's masks live as long as its token space.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from weakref import WeakKeyDictionary

from palmette.runtime.grammar.masks import Masks
from palmette.runtime.grammar.protocol import Grammar, TokenSpace

_masks: WeakKeyDictionary[TokenSpace, Masks] = WeakKeyDictionary()
_lock = Lock()


def masks_of(space: TokenSpace) -> Masks:
    """The masks over a vocabulary, with its trie: made at the first call, a fraction of a second."""
    with _lock:
        found = _masks.get(space)
        if found is None:
            found = _masks[space] = Masks(space.vocabulary)
        return found


class GrammarCache:
    """At most `count` grammars by the key of their source."""

    def __init__(self, count: int = 256) -> None:
        self._count = count
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Grammar | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, grammar: Grammar) -> None:
        with self._lock:
            self._kept[key] = grammar
            self._kept.move_to_end(key)
            if len(self._kept) > self._count:
                self._kept.popitem(last=False)
