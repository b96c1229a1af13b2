"""What a caller of the radix cache holds: a lease on a cached prefix, and what `match` and `insert` say of pages.

Leases are made by cache and act through it; this module knows nothing of trees.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from palmette.radix_cache.node import Node
from palmette.radix_cache.pages import PageId

if TYPE_CHECKING:
    from palmette.radix_cache.cache import RadixCache


class Tail(NamedTuple):
    """A match that goes on inside a page: the first `slots` slots of `page` hold the KV of the next tokens.

    The page belongs to another path; its slots are to be copied into a page of the request's own.
    """

    page: PageId
    slots: int


class Remap(msgspec.Struct, frozen=True):
    """Page `index` of a request's block table was computed twice: the table must point to `new_page`.

    `old_page` is private and unchanged until the caller, having remapped, gives it to `RadixCache.free`.
    """

    index: int
    old_page: PageId
    new_page: PageId


class Lease:
    """A request's hold on a cached prefix: no page of it goes or changes until it is released, once.

    `pages` are the whole pages (shared, read-only) and `length` their tokens; both grow by
    `RadixCache.insert`. `tail` is there until `drop_tail`, which is called when the copying step has
    committed. Usable in a `with` block. `lost` leases are those a quarantine dropped: nothing they name may
    be read any more.
    """

    __slots__ = (
        "_cache",
        "_grew",
        "_node",
        "_pages",
        "_tail_key",
        "_tail_parent",
        "lost",
        "namespace",
        "priority",
        "released",
        "tail",
    )

    def __init__(self, cache: RadixCache, namespace: str, node: Node, pages: array[int], priority: int) -> None:
        self.namespace = namespace
        self.priority = priority
        self.tail: Tail | None = None
        self.released = False
        self.lost = False
        self._cache = cache
        self._pages = pages
        self._node = node
        self._grew = False  # something was added behind what was matched
        self._tail_parent = node  # the tail's source is its child with this first page, also where that is split
        self._tail_key = b""

    @property
    def pages(self) -> Sequence[PageId]:
        """An array of int32 (`array.array`): made and copied at memcpy speed, whatever the page size."""
        return cast("Sequence[PageId]", self._pages)

    @property
    def length(self) -> int:
        return len(self._pages) * self._cache.page_size

    def drop_tail(self) -> None:
        """Gives the tail's source up: the copy is done, or not wanted. Nothing happens without a tail."""
        self._cache._drop_tail(self)

    def release(self) -> None:
        """Gives everything up. A second release is an assertion."""
        self._cache._release(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self.released:
            self.release()
