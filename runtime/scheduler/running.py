"""The running set: sequences that hold a slot of the worker's block tables, pages and a lease.

Owns the slots and the table writes that no step has carried yet. What leaves while a step is in flight is held until
that has finished. Decides nothing; called by planner and core.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.lease import Lease
from palmette.radix_cache.oracle import ReuseOracle
from palmette.radix_cache.pages import PageId
from palmette.runtime.scheduler import known_scores
from palmette.runtime.scheduler.batch import StepBatch
from palmette.runtime.scheduler.flights import Flights, Held, Kept
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
        self._flights = Flights()
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

    def held(self) -> Iterator[Held]:
        """What steps in flight use still, though nobody that runs does."""
        return iter(self._flights)

    def take_table_writes(self) -> list[tuple[int, int, PageId]]:
        """For the step that carries them."""
        taken, self.table_writes = self.table_writes, []
        return taken

    def dispatched(self, batch: StepBatch) -> None:
        """The step is in flight from now on, until `finished`."""
        self._flights.begin(batch.step)
        for row in batch.rows:
            row.sequence.dispatched += row.end - row.start
            row.sequence.drawing += row.samples
        for sequence in batch.admitted:
            sequence.arriving = True

    def finished(self, batch: StepBatch) -> None:
        """The step is over, however; its commit follows."""
        for row in batch.rows:
            if row.sequence in self:
                row.sequence.dispatched -= row.end - row.start
                row.sequence.drawing -= row.samples
        for sequence in batch.admitted:
            sequence.arriving = False
        for held in self._flights.end(batch.step):
            if held.lease is None:
                self._cache.free(held.pages)
            else:
                self._give_up(held.lease, held.pages, held.kept)
            if held.slot is not None:
                self._free_slots.append(held.slot)

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
        replaced = [remap.old_page for remap in remaps]
        if replaced and self._flights:
            self._flights.hold(Held(replaced))
        else:  # table writes go before the rows of the next plan, so a freed page can be handed out in it
            self._cache.free(replaced)
        self._oracle.observe(key, sequence.namespace)
        self._grown(sequence.namespace, sequence.key(sequence.lease.length), known)

    def leave(self, sequence: Sequence, *, keep_committed: bool) -> None:
        """Committed KV goes to the tree where it is kept, the other pages back to the pool; while a step is in flight,
        whole pages go to the tree, and the rest is held."""
        assert sequence.lease is not None
        kept = None
        if keep_committed and not sequence.arriving:
            generated = sequence.length - sequence.prompt_length
            kept = Kept(sequence.key(sequence.computed), sequence.namespace, sequence.scoring, generated)
        if self._flights:
            if kept is not None:
                self.insert(sequence)
            self._flights.hold(Held(sequence.pages, sequence.lease, sequence.slot, kept))
            self._take_out(sequence)
        else:
            self._give_up(sequence.lease, sequence.pages, kept)
            self.forget(sequence)

    def forget(self, sequence: Sequence) -> None:
        """Out of the set; what it holds in the cache is not given back."""
        slot = sequence.slot
        assert slot is not None
        self._take_out(sequence)
        if self._flights:
            self._flights.hold(Held((), slot=slot))
        else:
            self._free_slots.append(slot)

    def forget_all(self) -> None:
        for sequence in list(self._sequences):
            self._take_out(sequence)
        self._flights.drop_all()
        self._free_slots = list(range(self._slots - 1, -1, -1))

    def mend(self, known: Iterable[Sequence]) -> list[Sequence]:
        """After a fault that may have come between any two lines: slots, members and table writes agree again. Returns
        those of `known` that were neither in nor out: they must fail, and hold nothing any more."""
        known = list(known)
        self._flights.drop({sequence.lease for sequence in known})
        broken = [
            sequence
            for sequence in known
            if (sequence.slot is None) != (sequence not in self._sequences)
            or (sequence.slot is None and (sequence.lease is not None or bool(sequence.pages)))
            or (sequence.lease is not None and sequence.lease.released)
        ]
        for sequence in broken:
            try:
                if sequence.lease is not None and not sequence.lease.released:
                    if self._flights:
                        self._flights.hold(Held(sequence.pages, sequence.lease, sequence.slot))
                    else:
                        self._give_back(sequence.lease, sequence.pages)
            except Exception:  # an audit follows, and takes out of use what is lost
                log.exception("what request %r held could not be given back", sequence.request_id)
            self._empty(sequence)
        self._sequences = [sequence for sequence in self._sequences if sequence.slot is not None]
        taken = {sequence.slot for sequence in self._sequences} | {held.slot for held in self._flights}
        self._free_slots = [slot for slot in range(self._slots - 1, -1, -1) if slot not in taken]
        self.table_writes[:] = [write for write in self.table_writes if write[0] in taken]
        return broken

    def _take_out(self, sequence: Sequence) -> None:
        """Out of the set; its slot is not free yet."""
        slot = sequence.slot
        self.departures += 1
        self._sequences.remove(sequence)
        self.table_writes[:] = [write for write in self.table_writes if write[0] != slot]
        self._empty(sequence)

    def _empty(self, sequence: Sequence) -> None:
        sequence.slot, sequence.lease, sequence.pages = None, None, []
        sequence.computed = sequence.dispatched = sequence.drawing = 0
        sequence.arriving = False

    def _give_up(self, lease: Lease, pages: Seq[PageId], kept: Kept | None) -> None:
        if kept is None:
            self._give_back(lease, pages)
            return
        known = lease.length
        self._cache.finish(lease, kept.key, pages, generated=kept.generated)
        self._oracle.observe(kept.key, kept.namespace)
        if self._cache.enabled:
            self._grown(kept.namespace, kept.key, known)
            if kept.scoring is not None:
                known_scores.keep(kept.key, kept.namespace, kept.scoring, self._cache)

    def _give_back(self, lease: Lease, pages: Seq[PageId]) -> None:
        self._cache.free(pages[len(lease.pages) :])
        lease.release()

    def _write(self, sequence: Sequence, indices: range) -> None:
        slot = sequence.slot
        assert slot is not None
        self.table_writes += [(slot, index, sequence.pages[index]) for index in indices]
