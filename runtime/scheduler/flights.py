"""Steps in flight: handed to the worker and not finished, and what they use of sequences that have left meanwhile.

Such pages, slots and leases are given back when the last step that names them has finished, not before. Frees nothing
itself. Owned by the running set; empty where no step is planned while another runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from palmette.radix_cache.lease import Lease
from palmette.radix_cache.pages import PageId
from palmette.runtime.scheduler.scoring import Scoring


@dataclass(frozen=True, slots=True)
class Kept:
    """Committed tokens that go to the tree when their pages are given back, and the scores of some of them.

    `generated`: tokens of the answer, the last of which may not be committed.
    """

    key: bytes
    namespace: str
    scoring: Scoring | None
    generated: int


@dataclass(frozen=True, slots=True)
class Held:
    """`pages`: a block table, of which the lease has the first; without a lease all of them are private."""

    pages: Seq[PageId]
    lease: Lease | None = None
    slot: int | None = None
    kept: Kept | None = None

    @property
    def private(self) -> Seq[PageId]:
        return self.pages if self.lease is None else self.pages[len(self.lease.pages) :]


class Flights:
    """True while a step is in flight; iterates over what is held."""

    def __init__(self) -> None:
        self._steps: set[int] = set()
        self._held: list[tuple[int, Held]] = []  # behind the newest step then in flight

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __iter__(self) -> Iterator[Held]:
        return (held for _, held in self._held)

    def begin(self, step: int) -> None:
        self._steps.add(step)

    def end(self, step: int) -> Iterator[Held]:
        """What no step in flight names any more; each is forgotten before it is yielded."""
        self._steps.discard(step)
        oldest = min(self._steps, default=math.inf)
        while self._held and self._held[0][0] < oldest:
            yield self._held.pop(0)[1]

    def hold(self, held: Held) -> None:
        self._held.append((max(self._steps), held))

    def drop(self, leases: Collection[Lease | None]) -> None:
        """Forgets what is held for these leases."""
        self._held = [(step, held) for step, held in self._held if held.lease is None or held.lease not in leases]

    def drop_all(self) -> None:
        self._held.clear()
