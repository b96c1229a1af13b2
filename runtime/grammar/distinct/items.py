"""The items of an array so far, for arrays whose items must differ: which are there, and how they begin.

A trie that outputs share as long as they agree: each sees so many of its items, not those added later. So adding,
forking and rolling back cost as much as the item is long. Called by reading.py and matcher.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class _Node:
    """`since`: the item that came here first; `end`: the first whose text ends here."""

    __slots__ = ("children", "end", "since")

    def __init__(self, since: int) -> None:
        self.children: dict[int, _Node] = {}
        self.since = since
        self.end: int | None = None


class _Trie:
    def __init__(self) -> None:
        self.root = _Node(0)
        self.values: dict[str, int] = {}
        self.written: list[tuple[str, tuple[bytes, ...]]] = []

    def add(self, value: str, texts: tuple[bytes, ...]) -> None:
        number = len(self.written)
        self.values.setdefault(value, number)
        self.written.append((value, texts))
        for text in texts:
            node = self.root
            for byte in text:
                found = node.children.get(byte)
                if found is None:
                    found = node.children[byte] = _Node(number)
                node = found
            if node.end is None:
                node.end = number


class Rests(NamedTuple):
    """What the items go on with that begin in one way."""

    node: _Node | None
    size: int
    extra: tuple[bytes, ...] = ()

    def __bool__(self) -> bool:
        """Some item goes on."""
        return any(self.extra) or next(self.firsts(), None) is not None

    @property
    def ends(self) -> bool:
        """An item ends here."""
        return b"" in self.extra or (self.node is not None and self.node.end is not None and self.node.end < self.size)

    def firsts(self) -> Iterator[int]:
        """Bytes that come next, some of them perhaps twice."""
        if self.node is not None:
            for byte, child in self.node.children.items():
                if child.since < self.size:
                    yield byte
        yield from (rest[0] for rest in self.extra if rest)

    def after(self, byte: int) -> Rests | None:
        """None where no item goes on so."""
        node = None if self.node is None else self.node.children.get(byte)
        if node is not None and node.since >= self.size:
            node = None
        extra = tuple([rest[1:] for rest in self.extra if rest[:1] == bytes([byte])])
        return None if node is None and not extra else Rests(node, self.size, extra)


class Items(NamedTuple):
    """`extra`: those that are looked at as if they were written, and aren't part of the trie."""

    trie: _Trie
    size: int = 0
    extra: tuple[tuple[str, tuple[bytes, ...]], ...] = ()

    def __bool__(self) -> bool:
        return self.size > 0 or bool(self.extra)

    def has(self, value: str) -> bool:
        known = self.trie.values.get(value)
        return (known is not None and known < self.size) or any(value == each for each, _ in self.extra)

    def added(self, value: str, texts: tuple[bytes, ...]) -> Items:
        """`value`: its canonical text. `texts`: what it looks like up to where it is certainly over."""
        return self._replace(extra=(*self.extra, (value, texts)))

    def settled(self) -> Items:
        """With all that is looked at written."""
        if not self.extra:
            return self
        trie = self.trie
        if len(trie.written) != self.size:  # others have gone another way
            trie = _Trie()
            for value, texts in self.trie.written[: self.size]:
                trie.add(value, texts)
        for value, texts in self.extra:
            trie.add(value, texts)
        return Items(trie, len(trie.written))

    def rests(self, begun: bytes) -> Rests:
        """Of the items that start with `begun`."""
        texts = [text for _, each in self.extra for text in each]
        node: _Node | None = self.trie.root
        for byte in begun:
            node = None if node is None else node.children.get(byte)
        if node is not None and node.since >= self.size:
            node = None
        return Rests(node, self.size, tuple(text[len(begun) :] for text in texts if text.startswith(begun)))


def no_items() -> Items:
    return Items(_Trie())
