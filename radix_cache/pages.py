"""The page pool: which pages are free. It knows nothing of tokens, trees or requests.

Each page is free, private to a request, in exactly one tree node, or quarantined; the pool knows the first
and the last kind, radix_cache.cache keeps the rest apart. Called by cache only: callers use
`RadixCache.allocate` and `free`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NewType, cast

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


class PagePool:
    """Pages 0 … pages − 1, handed out last-in first-out."""

    def __init__(self, pages: int) -> None:
        assert pages > 0, f"a pool of {pages} pages"
        self.pages = pages
        self.quarantined: set[int] = set()
        self._free = array("i", range(pages - 1, -1, -1))
        self._is_free = bytearray(b"\x01") * pages

    @property
    def free_count(self) -> int:
        return len(self._free)

    def free_pages(self) -> list[PageId]:
        """The free list, for invariants and tests."""
        return cast("list[PageId]", self._free.tolist())

    def take(self, n: int) -> list[PageId]:
        """n pages from the free list. Raises OutOfPages where it holds fewer."""
        assert n >= 0, f"{n} pages asked for"
        if n > len(self._free):
            raise OutOfPages(n, free=len(self._free), evictable=0, total=self.pages)
        if n == 0:
            return []
        taken = self._free[-n:].tolist()
        del self._free[-n:]
        taken.reverse()
        for page in taken:
            self._is_free[page] = 0
        return cast("list[PageId]", taken)

    def give_back(self, pages: Iterable[int]) -> None:
        """Back to the free list, but for quarantined pages. A page that is free already is an assertion."""
        for page in pages:
            assert not self._is_free[page], f"page {page} was freed twice"
            if page not in self.quarantined:
                self._is_free[page] = 1
                self._free.append(page)

    def quarantine(self, pages: Iterable[int]) -> None:
        """Takes pages out of use for good, wherever they are now."""
        self.quarantined.update(pages)
        if any(self._is_free[page] for page in self.quarantined):
            self._free = array("i", [page for page in self._free if page not in self.quarantined])
            for page in self.quarantined:
                self._is_free[page] = 0
