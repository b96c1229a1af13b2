"""Which pages the cache holds, told to those who want to mirror it: stored and removed, by hashes of their content.

A page's hash chains over its tokens, all before it and the namespace, so equal hashes mean equal KV. Only whole pages
are told. Hears of every change from tree while it is attached to a cache (`RadixCache.listen`); without it nothing is
hashed or kept. Knows nothing of sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from palmette.radix_cache.key import page_hashes, root_hash
from palmette.radix_cache.node import Node, Root
from palmette.runtime.messages.kv_events import HASH_BYTES, KvEvent, PagesCleared, PagesRemoved, PagesStored


class PageEvents:
    """Keeps the hashes of every node's pages while it listens: HASH_BYTES a page."""

    def __init__(self, page_size: int, page_bytes: int, tell: Callable[[KvEvent], None]) -> None:
        self._page_size = page_size
        self._page_bytes = page_bytes
        self._tell = tell
        self._hashes: dict[Node, bytes] = {}

    def grown(self, node: Node) -> None:
        """A new node, or one that has more pages than before."""
        known = self._hashes.get(node, b"")
        last = known[-HASH_BYTES:] if known else self._parent_hash(node)
        key = node.key[len(known) // HASH_BYTES * self._page_bytes :]
        key = key[: len(key) // self._page_bytes * self._page_bytes]
        new = page_hashes(last, key, self._page_bytes)
        self._hashes[node] = known + b"".join(new)
        if new:
            self._tell(PagesStored(_namespace(node), self._page_size, last, tuple(new), key))

    def split(self, upper: Node, lower: Node) -> None:
        """`lower`'s first pages have become `upper`."""
        hashes, cut = self._hashes[lower], HASH_BYTES * len(upper.pages)
        self._hashes[upper], self._hashes[lower] = hashes[:cut], hashes[cut:]

    def trimmed(self, node: Node, kept: int) -> None:
        """`node` keeps its first `kept` pages; with none it is gone."""
        hashes, cut = self._hashes[node], HASH_BYTES * kept
        self._removed(hashes[cut:])
        if kept:
            self._hashes[node] = hashes[:cut]
        else:
            del self._hashes[node]

    def dropped(self, nodes: Iterable[Node]) -> None:
        """A subtree is gone as a whole."""
        for node in nodes:
            self._removed(self._hashes.pop(node, b""))

    def cleared(self) -> PageEvents:
        """Everything is gone at once; itself, to hear what comes now."""
        self._hashes.clear()
        self._tell(PagesCleared())
        return self

    def snapshot(self) -> Iterator[KvEvent]:
        """What a mirror that starts now must be told: everything is gone, then all that is there."""
        yield PagesCleared()
        for node, hashes in sorted(self._hashes.items(), key=lambda item: _depth(item[0])):
            if hashes:
                pages = _cut(hashes)
                key = node.key[: len(pages) * self._page_bytes]
                yield PagesStored(_namespace(node), self._page_size, self._parent_hash(node), pages, key)

    def _parent_hash(self, node: Node) -> bytes:
        parent = node.parent
        if parent is None or isinstance(parent, Root):
            return root_hash(_namespace(node))
        return self._hashes[parent][-HASH_BYTES:]

    def _removed(self, hashes: bytes) -> None:
        if hashes:
            self._tell(PagesRemoved(_cut(hashes)))


def _cut(hashes: bytes) -> tuple[bytes, ...]:
    return tuple(hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES))


def _depth(node: Node) -> int:
    return sum(1 for _ in node.path())


def _namespace(node: Node) -> str:
    top = node
    while top.parent is not None:
        top = top.parent
    assert isinstance(top, Root), "a node hangs below a root"
    return top.namespace
