"""A node of the radix tree, and the ordered set of its children.

Plain data: no policy, no locking, no page pool. Only radix_cache touches nodes; callers of the cache hold
leases.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from palmette.radix_cache.hints import Hint

CHUNK = 512  # children per chunk: halved at twice this length


class Node:
    """One edge of the tree: `key` behind the parent's tokens, and the pages that hold its KV.

    `key` has a whole number of pages of tokens, except in a partial leaf: one page, not full, never any
    children. `leases` counts the live leases whose path goes through the node; `tails` those that copy from
    its first page; `pins` the pins at the node or below it. `uses` counts matches. `ticket` is the node's live
    entry in the eviction order, where it has one. `hint` and `priority` (higher is worth more) are there for the
    eviction policies. `scores` are the log-probabilities of the node's tokens, NaN where unknown; most nodes have none.
    """

    __slots__ = ("children", "hint", "key", "last_used", "leases", "pages", "parent", "pins", "priority", "scores",
                 "tails", "ticket", "uses")  # fmt: skip

    def __init__(self, key: bytes, pages: array[int], parent: Node | None, last_used: float) -> None:
        self.key = key
        self.pages = pages
        self.parent = parent
        self.children = Children()
        self.leases = 0
        self.tails = 0
        self.uses = 0
        self.last_used = last_used
        self.ticket: int | None = None
        self.pins = 0
        self.hint: Hint | None = None
        self.priority = 0
        self.scores: array[float] | None = None

    @property
    def spare(self) -> int:
        """Pages that could be evicted once everything below the node is gone."""
        return 0 if self.leases else len(self.pages) - (self.tails > 0)

    def path(self) -> Iterator[Node]:
        """The node, its parent, … the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def subtree(self) -> Iterator[Node]:
        """The node and all below it, parents before children, siblings in key order."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(list(node.children)))


class Root(Node):
    """The top of a namespace: no tokens, no pages."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: str, last_used: float) -> None:
        super().__init__(b"", array("i"), None, last_used)
        self.namespace = namespace


class Neighbours(NamedTuple):
    """The children around a key: the last one before it, and the first at or behind it."""

    before: Node | None
    after: Node | None


_key = attrgetter("key")


def _first_key(chunk: list[Node]) -> bytes:
    return chunk[0].key


class Children:
    """Children ordered by the bytes of their keys, in chunks: as cheap among 100,000 siblings as among ten.

    Siblings never share a full first page, so their order is settled within it: splitting a child behind
    its first page, trimming or extending it leaves the order as it was.
    """

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: list[list[Node]] = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __iter__(self) -> Iterator[Node]:
        for chunk in self._chunks:
            yield from chunk

    def neighbours(self, key: bytes) -> Neighbours:
        """The children next to `key`; the longest common run with any child is the longer of theirs."""
        chunks = self._chunks
        if not chunks:
            return Neighbours(None, None)
        c = self._chunk_of(key)
        chunk = chunks[c]
        i = bisect_left(chunk, key, key=_key)
        before = chunk[i - 1] if i else (chunks[c - 1][-1] if c else None)
        after = chunk[i] if i < len(chunk) else (chunks[c + 1][0] if c + 1 < len(chunks) else None)
        return Neighbours(before, after)

    def starting_with(self, key: bytes) -> Node | None:
        """The first child whose key starts with `key`: with a full page as `key`, the only one."""
        chunks = self._chunks
        if not chunks:
            return None
        c = self._chunk_of(key)
        chunk = chunks[c]
        i = bisect_left(chunk, key, key=_key) if len(chunk) > 1 or len(chunks) > 1 else 0
        if i == len(chunk):
            c, i = c + 1, 0
            if c == len(chunks):
                return None
            chunk = chunks[c]
        child = chunk[i]
        return child if child.key.startswith(key) else None

    def add(self, node: Node) -> None:
        chunks = self._chunks
        if not chunks:
            chunks.append([node])
            return
        c = self._chunk_of(node.key)
        chunk = chunks[c]
        chunk.insert(bisect_left(chunk, node.key, key=_key), node)
        if len(chunk) > 2 * CHUNK:
            chunks[c : c + 1] = [chunk[:CHUNK], chunk[CHUNK:]]

    def remove(self, node: Node) -> None:
        c, i = self._find(node)
        chunk = self._chunks[c]
        del chunk[i]
        if not chunk:
            del self._chunks[c]

    def discard(self, node: Node) -> None:
        """Removes the node wherever it is: for children whose order can't be trusted."""
        for chunk in self._chunks:
            chunk[:] = [child for child in chunk if child is not node]
        self._chunks = [chunk for chunk in self._chunks if chunk]

    def replace(self, old: Node, new: Node) -> None:
        """Puts `new` where `old` is; they share their first page."""
        c, i = self._find(old)
        self._chunks[c][i] = new

    def _chunk_of(self, key: bytes) -> int:
        """The chunk whose range holds `key` (there is at least one chunk)."""
        if len(self._chunks) == 1:
            return 0
        return max(0, bisect_right(self._chunks, key, key=_first_key) - 1)

    def _find(self, node: Node) -> tuple[int, int]:
        c = self._chunk_of(node.key)
        i = bisect_left(self._chunks[c], node.key, key=_key)
        assert self._chunks[c][i] is node, "a child lies where its key says"
        return c, i
