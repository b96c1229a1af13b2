"""What programs know of a cached path's future, as the eviction policies read it.

Plain data on the cache's clock. Set by `RadixCache.hint`, kept by nodes, read by the policies of eviction. A hint is
a prediction: a wrong one costs a recomputation, never a wrong result.
"""

from __future__ import annotations

from typing import NamedTuple


class Hint(NamedTuple):
    """Times are those of the cache's clock, in seconds; a time in the past says nothing any more.

    `next_use`: when the path will be matched next. `last_use`: it won't be, as far as is known. `waits_until`: its
    branch waits for a tool, whose result is expected by then.
    """

    next_use: float | None = None
    last_use: bool = False
    waits_until: float | None = None

    def after_use(self) -> Hint | None:
        """What is left of it once the path is matched: the branch no longer waits, and was not at its last use."""
        return Hint(self.next_use) if self.next_use is not None else None

    def merged(self, other: Hint, now: float) -> Hint:
        """For what several paths share: the earliest use still to come, the longest wait, and no last use."""
        uses = [use for use in (self.next_use, other.next_use) if use is not None and use >= now]
        waits = [wait for wait in (self.waits_until, other.waits_until) if wait is not None and wait >= now]
        return Hint(min(uses, default=None), False, max(waits, default=None))
