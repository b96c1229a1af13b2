"""The running set: sequences that hold a slot of the worker's block tables, pages and a lease.

Owns the slots and the table writes that no executed step has carried yet. Decides nothing; called by the core.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.oracle import ReuseOracle
from palmette.radix_cache.pages import PageId
from palmette.runtime.scheduler.sequence import Sequence

log = logging.getLogger(__name__)


class RunningSet:
    """In order of admission. `table_writes` are (slot, index, page), always of sequences that run."""

    def __init__(
        self, cache: RadixCache, oracle: ReuseOracle, slots: int, grown: Callable[[str, bytes, int], None]
    ) -> None:
        """`grown(namespace, key, known)` is told what the tree came to hold: `key`, whose first `known` tokens it held
        before."""
        self._cache = cache
        self._oracle = oracle
        self._grown = grown
        self._slots = slots
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

    def insert(self, sequence: Sequence) -> None:
        """Give the tree the whole pages computed so far. Pages that it already had elsewhere take the place of ours."""
        assert sequence.lease is not None
        key, known = sequence.key(sequence.computed), sequence.lease.length
        remaps = self._cache.insert(sequence.lease, key, sequence.pages)
        for remap in remaps:
            self.replace(sequence, remap.index, remap.new_page)
        # Table writes go before the rows of the next plan, so a freed page can be handed out in it.
        self._cache.free([remap.old_page for remap in remaps])
        self._oracle.observe(key, sequence.namespace)
        self._grown(sequence.namespace, sequence.key(sequence.lease.length), known)

    def leave(self, sequence: Sequence, *, keep_committed: bool) -> None:
        """Committed KV goes to the tree where it is kept, the other pages back to the pool."""
        assert sequence.lease is not None
        if keep_committed:
            key, known = sequence.key(sequence.computed), sequence.lease.length
            self._cache.finish(sequence.lease, key, sequence.pages)
            self._oracle.observe(key, sequence.namespace)
            if self._cache.enabled:
                self._grown(sequence.namespace, key, known)
        else:
            self._give_back(sequence)
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

    def forget_all(self) -> None:
        for sequence in list(self._sequences):
            self.forget(sequence)

    def mend(self, known: Iterable[Sequence]) -> list[Sequence]:
        """After a fault that may have come between any two lines: slots, members and table writes agree again. Returns
        those of `known` that were neither in nor out: they must fail, and hold nothing any more."""
        broken = [
            sequence
            for sequence in known
            if (sequence.slot is None) != (sequence not in self._sequences)
            or (sequence.slot is None and (sequence.lease is not None or bool(sequence.pages)))
        ]
        for sequence in broken:
            try:
                if sequence.lease is not None and not sequence.lease.released:
                    self._give_back(sequence)
            except Exception:  # an audit follows, and takes out of use what is lost
                log.exception("what request %r held could not be given back", sequence.request_id)
            sequence.slot, sequence.lease, sequence.pages, sequence.computed = None, None, [], 0
        self._sequences = [sequence for sequence in self._sequences if sequence.slot is not None]
        taken = {sequence.slot for sequence in self._sequences}
        self._free_slots = [slot for slot in range(self._slots - 1, -1, -1) if slot not in taken]
        self.table_writes[:] = [write for write in self.table_writes if write[0] in taken]
        return broken

    def _give_back(self, sequence: Sequence) -> None:
        assert sequence.lease is not None
        self._cache.free(sequence.pages[len(sequence.lease.pages) :])
        sequence.lease.release()

    def _write(self, sequence: Sequence, indices: range) -> None:
        slot = sequence.slot
        assert slot is not None
        self.table_writes += [(slot, index, sequence.pages[index]) for index in indices]
