"""Which waiting sequences start now: by policy, by pages, and never to compute what another is just computing.

Takes leases and pages for those it admits. Called by the core after the running sequences have their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial

from palmette.radix_cache.cache import Lease, RadixCache, Tail
from palmette.radix_cache.key import common_tokens
from palmette.radix_cache.oracle import ReuseOracle
from palmette.runtime.scheduler.batch import StepBatch
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.sequence import Sequence


class Admission:
    """For each running sequence a page is left free for its growth when another is admitted."""

    def __init__(self, cache: RadixCache, oracle: ReuseOracle, queue: WaitingQueue, page_size: int) -> None:
        self._cache = cache
        self._oracle = oracle
        self._queue = queue
        self._page_size = page_size
        self._refused: tuple[int, int] | None = None  # changes of the queue, and room, when pages were last missing

    def admit(self, running: Collection[Sequence], batch: StepBatch) -> Iterator[Sequence]:
        """The waiting sequences that may start now, best first, each with a lease and the pages for its prompt.

        `running` is read anew for each, so the caller must have put the one before there.
        """
        if running and self._is_refused_still(running):
            return
        prefilling = [other for other in running if not other.decoding]
        waits = False
        for candidate, matched in self._queue.in_order(partial(self._matched, batch)):
            batch.subject = candidate
            if self._computed_by_another(candidate, matched, prefilling):
                waits = True
                continue
            if not self._take_pages(candidate, running, batch):
                self._refused = None if waits else (self._queue.changes, self._room(running))
                return
            self._queue.admit(candidate)
            yield candidate
            prefilling.append(candidate)

    def _room(self, running: Collection[Sequence]) -> int:
        """Pages that may be given to a sequence that starts now."""
        return self._cache.available() - len(running)

    def _is_refused_still(self, running: Collection[Sequence]) -> bool:
        """Nobody came or went since the best candidate found no pages, and there are no more of them: looking at
        all that wait would find the same."""
        if self._refused is None:
            return False
        changes, room = self._refused
        return changes == self._queue.changes and self._room(running) <= room

    def _matched(self, batch: StepBatch, sequence: Sequence) -> int:
        batch.subject = sequence
        return self._cache.peek(sequence.key(sequence.matchable), sequence.namespace)

    def _computed_by_another(self, candidate: Sequence, matched: int, prefilling: Iterable[Sequence]) -> bool:
        """A running prefill will leave more of this prefix in the tree than is there now.

        The wait is bounded: a running prefill advances in every step, and one that fails or is retracted no longer
        runs, so the candidate computes the prefix itself.
        """
        if not self._cache.enabled:
            return False
        next_page = (matched // self._page_size + 1) * self._page_size
        for other in prefilling:
            # A score leaves its last page when it ends, which is soon; a generation whole pages only.
            more = matched + 1 if other.generation is None else next_page
            shares = other.namespace == candidate.namespace and more < candidate.matchable
            if shares and other.tokens.startswith(candidate.key(more)):
                return True
        return False

    def _take_pages(self, sequence: Sequence, running: Collection[Sequence], batch: StepBatch) -> bool:
        """Lease the cached prefix and allocate the pages for the rest; False where they are not to be had now."""
        cache, page_size = self._cache, self._page_size
        lease = cache.match(sequence.key(sequence.matchable), sequence.namespace)
        total = -(-sequence.length // page_size)
        needed = total - len(lease.pages)
        if lease.tail is not None and self._room(running) < needed:
            lease.drop_tail()  # its page may be just the one that is missing
        if self._room(running) < needed:
            lease.release()
            return False
        sequence.lease = lease
        sequence.pages = [*lease.pages, *cache.allocate(needed)]
        tail = self._running_tail(sequence, lease, running) or lease.tail
        sequence.computed = lease.length
        if tail is not None:
            batch.copies.append((tail.page, sequence.pages[len(lease.pages)], tail.slots))
            sequence.computed += tail.slots
        if sequence.admitted is None:
            sequence.cached_tokens = sequence.computed
            key = sequence.key(sequence.matchable)
            sequence.reusable_tokens = max(sequence.computed, self._oracle.reusable(key, sequence.namespace))
        return True

    def _running_tail(self, sequence: Sequence, lease: Lease, running: Collection[Sequence]) -> Tail | None:
        """The page in which a running sequence goes on with this one's tokens beyond the tree's best match, if any.

        A running sequence keeps its last page to itself until it ends, so the tree can't offer it. Its committed
        slots don't change, and the copy is made in this very step, before anything else is written or freed.
        """
        best = lease.tail
        slots = best.slots if best is not None else 0
        if not self._cache.enabled:
            return best
        whole = len(lease.pages)
        most = min(self._page_size, sequence.matchable - 1 - lease.length)
        wanted = sequence.slice(lease.length, lease.length + most)
        for other in running:
            # A page is in one place of the tree, so whoever shares the last of the lease's pages shares all of them.
            if other.computed <= lease.length + slots or other.namespace != sequence.namespace:
                continue
            if whole and other.pages[whole - 1] != lease.pages[-1]:
                continue
            common = common_tokens(wanted, other.slice(lease.length, min(other.computed, lease.length + most)))
            if common > slots:
                best, slots = Tail(other.pages[whole], common), common
        return best
