"""The running set: sequences that hold a slot of the worker's block tables, pages and a lease.

Owns the slots and the table writes that no executed step has carried yet. Decides nothing; called by the core.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.oracle import ReuseOracle
from palmette.radix_cache.pages import PageId
from palmette.runtime.scheduler.sequence import Sequence


class RunningSet:
    """In order of admission. `table_writes` are (slot, index, page), always of sequences that run."""

    def __init__(self, cache: RadixCache, oracle: ReuseOracle, slots: int) -> None:
        self._cache = cache
        self._oracle = oracle
        self._sequences: list[Sequence] = []
        self._free_slots = list(range(slots - 1, -1, -1))
        self.table_writes: list[tuple[int, int, PageId]] = []
        self.departures = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def __contains__(self, sequence: object) -> bool:
        return isinstance(sequence, Sequence) and sequence.slot is not None

    @property
    def full(self) -> bool:
        return not self._free_slots

    @property
    def latest(self) -> Sequence:
        return self._sequences[-1]

    def start(self, sequence: Sequence) -> None:
        """`sequence` has its lease and the pages of its tokens."""
        sequence.slot = self._free_slots.pop()
        self._sequences.append(sequence)
        self._write(sequence, range(len(sequence.pages)))

    def extend(self, sequence: Sequence, pages: Seq[PageId]) -> None:
        known = len(sequence.pages)
        sequence.pages += pages
        self._write(sequence, range(known, len(sequence.pages)))

    def replace(self, sequence: Sequence, index: int, page: PageId) -> None:
        sequence.pages[index] = page
        self._write(sequence, range(index, index + 1))

    def leave(self, sequence: Sequence, *, keep_committed: bool) -> None:
        """Committed KV goes to the tree where it is kept, the other pages back to the pool."""
        assert sequence.lease is not None
        if keep_committed:
            key = sequence.key(sequence.computed)
            self._cache.finish(sequence.lease, key, sequence.pages)
            self._oracle.observe(key, sequence.namespace)
        else:
            self._cache.free(sequence.pages[len(sequence.lease.pages) :])
            sequence.lease.release()
        self.forget(sequence)

    def forget(self, sequence: Sequence) -> None:
        """Out of the set; what it holds in the cache is not given back."""
        slot = sequence.slot
        assert slot is not None
        self.departures += 1
        self._sequences.remove(sequence)
        self._free_slots.append(slot)
        self.table_writes[:] = [write for write in self.table_writes if write[0] != slot]
        sequence.slot, sequence.lease, sequence.pages, sequence.computed = None, None, [], 0

    def _write(self, sequence: Sequence, indices: range) -> None:
        slot = sequence.slot
        assert slot is not None
        self.table_writes += [(slot, index, sequence.pages[index]) for index in indices]
