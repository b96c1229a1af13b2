"""The page pool: which pages are free. It knows nothing of tokens, trees or requests.

Each page is free, private to a request, in exactly one tree node, or quarantined; the pool knows the first
and the last kind, radix_cache.cache keeps the rest apart. Called by cache only: callers use
`RadixCache.allocate` and `free`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NewType, cast

import numpy as np

from palmette.runtime.errors import PalmetteError

PageId = NewType("PageId", int)


class OutOfPages(PalmetteError):
    """More pages were asked for than are free or evictable now. Nothing was taken or evicted."""

    retryable = True
    http_status = 503

    def __init__(self, needed: int, *, free: int, evictable: int, total: int) -> None:
        super().__init__(
            f"{needed!r} KV pages are needed; {free} are free and {evictable} evictable, of {total}.",
            hint="Wait for running requests to finish, retract one, or start with a larger kv_tokens.",
        )
        self.needed = needed
        self.free = free
        self.evictable = evictable
        self.total = total


FEW = 24  # pages up to which a loop costs less than numpy's calls


class PagePool:
    """Pages 0 … pages − 1, handed out last-in first-out."""

    def __init__(self, pages: int) -> None:
        assert pages > 0, f"a pool of {pages} pages"
        self.pages = pages
        self.quarantined: set[int] = set()
        self._free = array("i", range(pages - 1, -1, -1))
        self._place = array("i", range(pages, 0, -1))  # 1 + its index in the free list; 0: it isn't there
        self._places = np.frombuffer(self._place, np.int32)  # the same memory, for many pages at once

    @property
    def free_count(self) -> int:
        return len(self._free)

    def free_pages(self) -> list[PageId]:
        """The free list, for invariants and tests."""
        return cast("list[PageId]", self._free.tolist())

    def take(self, n: int) -> array[int]:
        """n pages from the free list. Raises OutOfPages where it holds fewer."""
        assert n >= 0, f"{n} pages asked for"
        if n > len(self._free):
            raise OutOfPages(n, free=len(self._free), evictable=0, total=self.pages)
        if n == 0:
            return array("i")
        taken = self._free[-n:]
        del self._free[-n:]
        if n <= FEW:
            for page in taken:
                self._place[page] = 0
        else:
            self._places[np.frombuffer(taken, np.int32)] = 0
        taken.reverse()
        return taken

    def give_back(self, pages: Iterable[int]) -> None:
        """Back to the free list, but for quarantined pages. A page that is free already is an assertion."""
        given = pages if isinstance(pages, array) else array("i", pages)
        if self.quarantined:
            given = array("i", [page for page in given if page not in self.quarantined])
        if len(given) <= FEW:
            for page in given:
                assert not self._place[page], f"page {page} was freed twice"
                self._free.append(page)
                self._place[page] = len(self._free)
        elif given:
            self._give_back_many(given)

    def quarantine(self, pages: Iterable[int]) -> None:
        """Takes pages out of use for good, wherever they are now."""
        self.quarantined.update(pages)
        if any(self._place[page] for page in self.quarantined):
            self._free = array("i", [page for page in self._free if page not in self.quarantined])
            self._places[:] = 0
            self._places[np.array(self._free, dtype=np.int32)] = np.arange(1, len(self._free) + 1, dtype=np.int32)

    def _give_back_many(self, given: array[int]) -> None:
        pages = np.frombuffer(given, np.int32)
        before = self._places[pages]
        assert not before.any(), f"page {pages[before.argmax()]} was freed twice"
        places = np.arange(len(self._free) + 1, len(self._free) + len(given) + 1, dtype=np.int32)
        self._places[pages] = places
        assert (self._places[pages] == places).all(), "a page was freed twice at once"
        self._free += given
