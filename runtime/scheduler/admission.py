"""Which waiting sequences start now: by policy, by pages, and never to compute what another is just computing.

Takes leases and pages for those it admits. Called by the core after the running sequences have their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from palmette.radix_cache.cache import Lease, RadixCache, Tail
from palmette.radix_cache.key import common_tokens
from palmette.radix_cache.oracle import ReuseOracle
from palmette.runtime.scheduler.batch import StepBatch
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.sequence import Sequence


class Admission:
    """`headroom`: pages left free for each running sequence's growth when another is admitted."""

    def __init__(self, cache: RadixCache, oracle: ReuseOracle, queue: WaitingQueue, page_size: int) -> None:
        self._cache = cache
        self._oracle = oracle
        self._queue = queue
        self._page_size = page_size

    def admit(self, running: Collection[Sequence], batch: StepBatch) -> Iterator[Sequence]:
        """The waiting sequences that may start now, best first, each with a lease and the pages for its prompt.

        `running` is read anew for each, so the caller must have put the one before there.
        """
        for candidate, matched in self._queue.in_order(partial(self._matched, batch)):
            batch.subject = candidate
            if self._computed_by_another(candidate, matched, running):
                continue
            if not self._take_pages(candidate, running, batch):
                return
            self._queue.admit(candidate)
            yield candidate

    def _matched(self, batch: StepBatch, sequence: Sequence) -> int:
        batch.subject = sequence
        return self._cache.peek(sequence.key(sequence.matchable), sequence.namespace)

    def _computed_by_another(self, candidate: Sequence, matched: int, running: Collection[Sequence]) -> bool:
        """A running prefill will leave more of this prefix in the tree than is there now.

        The wait is bounded: a running prefill advances in every step, and one that fails or is retracted no longer
        runs, so the candidate computes the prefix itself.
        """
        key = candidate.key(candidate.matchable)
        for other in running:
            if other.namespace != candidate.namespace or other.decoding or other.computed >= other.length:
                continue
            if min(common_tokens(key, other.key(other.length)), candidate.matchable - 1) > matched:
                return True
        return False

    def _take_pages(self, sequence: Sequence, running: Collection[Sequence], batch: StepBatch) -> bool:
        """Lease the cached prefix and allocate the pages for the rest; False where they are not to be had now."""
        cache, page_size = self._cache, self._page_size
        lease = cache.match(sequence.key(sequence.matchable), sequence.namespace)
        total = -(-sequence.length // page_size)
        needed = total - len(lease.pages)
        headroom = len(running)
        if lease.tail is not None and cache.available() < needed + headroom:
            lease.drop_tail()  # its page may be just the one that is missing
        if cache.available() < needed + headroom:
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
        key = sequence.key(sequence.matchable)
        for other in running:
            if other.namespace != sequence.namespace or other.computed <= lease.length + slots:
                continue
            common = min(common_tokens(key, other.key(other.computed)), sequence.matchable - 1) - lease.length
            if slots < common <= self._page_size:
                best, slots = Tail(other.pages[len(lease.pages)], common), common
        return best
