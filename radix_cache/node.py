"""A node of the radix tree, and the ordered set of its children.

Plain data: no policy, no locking, no page pool. Only radix_cache touches nodes; callers of the cache hold
leases.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from palmette.radix_cache.hints import Hint
from palmette.runtime.messages.tokens import TOKEN_BYTES

if TYPE_CHECKING:
    from palmette.radix_cache.scores import Scores

CHUNK = 512  # children of a part: halved at twice this length


class Node:
    """One edge of the tree: `key` behind the parent's tokens, and the pages that hold its KV.

    `key` has a whole number of pages of tokens, except in a partial leaf: one page, not full, never any children.
    `leases` counts the live leases whose path goes through the node; `tails` those that copy from its first page;
    `pins` the pins at the node or below it; `uses` matches. `ticket` is the node's live entry in the eviction order,
    where it has one. `hint` and `priority` (higher is worth more) are there for the eviction policies, `past` for what
    one that learns remembers. `scores` are log-probabilities of the node's tokens and of what might follow them;
    most nodes have none.
    """

    __slots__ = ("children", "hint", "key", "last_used", "leases", "pages", "parent", "past", "pins", "priority",
                 "scores", "tails", "ticket", "uses")  # fmt: skip

    def __init__(self, key: bytes, pages: array[int], parent: Node | None, last_used: float) -> None:
        self.key = key
        self.pages = pages
        self.parent = parent
        self.children = NO_CHILDREN
        self.leases = 0
        self.tails = 0
        self.uses = 0
        self.last_used = last_used
        self.ticket: int | None = None
        self.pins = 0
        self.hint: Hint | None = None
        self.priority = 0
        self.past: Any = None
        self.scores: Scores | None = None

    @property
    def spare(self) -> int:
        """Pages that could be evicted once everything below the node is gone."""
        return 0 if self.leases else len(self.pages) - (self.tails > 0)

    def adopt(self, child: Node) -> None:
        """Hangs the child below the node. A leaf has no set of its own: most nodes are leaves."""
        if self.children is NO_CHILDREN:
            self.children = Children()
        self.children.add(child)

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
_none: list[Node] = []  # of all nodes without children; never changed
_no_heads: array[int] = array("I")


def _head(key: bytes) -> int:
    """A key's first token as a number in the order of its bytes. However a node is cut, it keeps its first token."""
    return int.from_bytes(key[:TOKEN_BYTES], "big")


class Children:
    """Children ordered by the bytes of their keys: as cheap among 100,000 siblings as among ten.

    Siblings never share a full first page, so their order is settled within it: splitting a child behind its first
    page, trimming or extending it leaves the order as it was. Beside the nodes lie the heads of their keys, so that a
    search reads one short run of memory, not a node and a key, cold both, at each of its probes. A set of more than
    4 × CHUNK is cut into parts, one level deep.
    """

    __slots__ = ("_heads", "_nodes", "_parts")

    def __init__(self) -> None:
        self._nodes = _none
        self._heads = _no_heads
        self._parts: list[Children] | None = None

    def __len__(self) -> int:
        return len(self._nodes) if self._parts is None else sum(map(len, self._parts))

    def __bool__(self) -> bool:
        return bool(self._nodes or self._parts)

    def __iter__(self) -> Iterator[Node]:
        if self._parts is None:
            return iter(self._nodes)
        return chain.from_iterable(self._parts)

    def neighbours(self, key: bytes) -> Neighbours:
        """The children next to `key`; the longest common run with any child is the longer of theirs."""
        before = after = None
        part: Children = self
        if (parts := self._parts) is not None:
            c = self._part_of(key)
            part = parts[c]
            before = parts[c - 1]._nodes[-1] if c else None
            after = parts[c + 1]._nodes[0] if c + 1 < len(parts) else None
        i = part._index(key)
        nodes = part._nodes
        return Neighbours(nodes[i - 1] if i else before, nodes[i] if i < len(nodes) else after)

    def starting_with(self, key: bytes) -> Node | None:
        """The first child whose key starts with `key`: with a full page as `key`, the only one."""
        nodes = self._nodes
        if self._parts is not None:
            child = self.neighbours(key).after
        elif len(nodes) > 1:
            i = self._index(key)
            child = nodes[i] if i < len(nodes) else None
        else:
            child = nodes[0] if nodes else None
        return child if child is not None and child.key.startswith(key) else None

    def add(self, node: Node) -> None:
        if self._parts is not None:
            c = self._part_of(node.key)
            part = self._parts[c]
            part.add(node)
            if len(part._nodes) > 2 * CHUNK:
                self._parts[c : c + 1] = part._halves()
            return
        if not self._nodes:
            self._nodes, self._heads = [], array("I")
        i = self._index(node.key)
        self._nodes.insert(i, node)
        self._heads.insert(i, _head(node.key))
        if len(self._nodes) > 4 * CHUNK:
            self._parts = [part for half in self._halves() for part in half._halves()]
            self._nodes, self._heads = _none, _no_heads

    def remove(self, node: Node) -> None:
        nodes = self._nodes
        if nodes and (nodes[0] is node or nodes[-1] is node):  # one of few, most often: no search
            self._delete(0 if nodes[0] is node else len(nodes) - 1)
            return
        part, i = self._find(node)
        part._delete(i)
        self._forget_empty(part)

    def discard(self, node: Node) -> None:
        """Removes the node wherever it is: for children whose order can't be trusted."""
        for part in [self] if self._parts is None else list(self._parts):
            for i in [i for i, child in enumerate(part._nodes) if child is node]:
                part._delete(i)
                self._forget_empty(part)

    def replace(self, old: Node, new: Node) -> None:
        """Puts `new` where `old` is; they share their first page."""
        part, i = self._find(old)
        part._nodes[i] = new

    def heads_are_right(self) -> bool:
        """For invariants. O(children)."""
        parts = [self] if self._parts is None else self._parts
        return all(part._heads.tolist() == [_head(node.key) for node in part._nodes] for part in parts)

    def _part_of(self, key: bytes) -> int:
        """Index of the part whose range holds `key`."""
        assert self._parts is not None
        return max(0, bisect_right(self._parts, key, key=_first_key) - 1)

    def _index(self, key: bytes) -> int:
        """Where `key` is or would be among the nodes of a set without parts."""
        heads, head = self._heads, _head(key)
        i = bisect_left(heads, head)
        if i == len(heads) or heads[i] != head:
            return i
        return bisect_left(self._nodes, key, i, bisect_right(heads, head, i), key=_key)

    def _find(self, node: Node) -> tuple[Children, int]:
        part = self if self._parts is None else self._parts[self._part_of(node.key)]
        i = part._index(node.key)
        assert part._nodes[i] is node, "a child lies where its key says"
        return part, i

    def _delete(self, i: int) -> None:
        del self._nodes[i], self._heads[i]
        if not self._nodes:
            self._nodes, self._heads = _none, _no_heads

    def _forget_empty(self, part: Children) -> None:
        if self._parts is not None and not part._nodes:
            self._parts.remove(part)
            self._parts = self._parts or None

    def _halves(self) -> list[Children]:
        middle = len(self._nodes) // 2
        lower, upper = Children(), Children()
        lower._nodes, upper._nodes = self._nodes[:middle], self._nodes[middle:]
        lower._heads, upper._heads = self._heads[:middle], self._heads[middle:]
        return [lower, upper]


NO_CHILDREN = Children()  # of all leaves; nothing is ever added to it


def _first_key(part: Children) -> bytes:
    return part._nodes[0].key
