"""Which waiting sequences start now: by policy, by pages, programs under way before new ones, and never to compute
what another is just computing.

Takes leases and pages for those it admits. Called by the planner after the running sequences have their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from palmette.radix_cache.cache import Lease, RadixCache, Tail
from palmette.radix_cache.key import common_tokens
from palmette.radix_cache.oracle import ReuseOracle
from palmette.runtime.messages.tokens import TOKEN_BYTES
from palmette.runtime.scheduler.batch import StepBatch
from palmette.runtime.scheduler.known_scores import recall
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.retraction import Growth
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.sharing import PrefixSharing
from palmette.runtime.scheduler.starts import Starts


class Admission:
    """What running sequences are expected to grow by is left free when another is admitted."""

    def __init__(
        self, cache: RadixCache, oracle: ReuseOracle, queue: WaitingQueue, growth: Growth, page_size: int
    ) -> None:
        self._cache = cache
        self._oracle = oracle
        self._queue = queue
        self._growth = growth
        self._page_size = page_size
        self._sharing = PrefixSharing(page_size)
        self._starts = Starts(cache.pages * page_size)
        self._refused: tuple[int, int] | None = None  # changes of the queue, and room, when pages were last missing

    def admit(self, running: Collection[Sequence], batch: StepBatch) -> Iterator[Sequence]:
        """The waiting sequences that may start now, best first, each with a lease and the pages for its prompt.

        `running` is read anew for each, so the caller must have put the one before there. The first that finds no
        pages, or begins a program for which there is no room, ends it: what is freed from now on is kept for it.
        """
        if running and self._is_refused_still(running):
            return
        prefilling = [other for other in running if not other.decoding]
        waits = False
        forced = self._starts.impatient
        for candidate in self._queue.candidates(overdue_first=forced):
            batch.subject = candidate
            if self._waits(candidate, prefilling):
                waits = True
                continue
            overdue_begins = self._queue.begins(candidate) and self._queue.is_overdue(candidate)
            leaves_room = (forced and overdue_begins) or self._leaves_room(candidate, running)
            if not leaves_room or not self._take_pages(candidate, running, batch):
                self._refused = None if waits else (self._queue.changes, self.room(running))
                return
            self._admitted(candidate, overdue_begins=overdue_begins)
            yield candidate
            if forced and overdue_begins:
                return  # one at a time
            prefilling.append(candidate)

    def room(self, running: Collection[Sequence]) -> int:
        """Pages that may be given to a sequence that starts now."""
        return self._cache.available() - self._growth.pages(running)

    def pages_for(self, sequence: Sequence) -> int:
        """Pages that it would need beyond those that the tree holds for it now."""
        return -(-sequence.length // self._page_size) - self.matched(sequence) // self._page_size

    def matched(self, sequence: Sequence) -> int:
        """Tokens of it that the tree holds now."""
        return self._cache.peek(sequence.key(sequence.matchable), sequence.namespace)

    def _is_refused_still(self, running: Collection[Sequence]) -> bool:
        """Nobody came or went since the best candidate found no pages, and there are no more of them: looking at
        all that wait would find the same."""
        if self._refused is None:
            return False
        changes, room = self._refused
        return changes == self._queue.changes and self.room(running) <= room

    def _leaves_room(self, sequence: Sequence, running: Collection[Sequence]) -> bool:
        """Whether it goes on with a program, or beside it those that run have room for their next turns."""
        reserve = self._starts.reserve(len(running)) if running and self._queue.begins(sequence) else 0.0
        if not reserve:
            return True
        tokens = self._growth.outputs(sequence) + reserve
        return self.room(running) - self.pages_for(sequence) >= tokens / self._page_size

    def _admitted(self, sequence: Sequence, *, overdue_begins: bool) -> None:
        prefill, turn = sequence.length - sequence.computed, self._queue.turn(sequence)
        grows = turn + self._growth.outputs(sequence) if turn else 0.0
        self._starts.admitted(grows, prefill, overdue_begins=overdue_begins)
        self._sharing.forget(sequence)
        self._queue.admit(sequence, prefill)

    def _waits(self, candidate: Sequence, prefilling: list[Sequence]) -> bool:
        """For a prefix that another is just computing; an overdue one does not."""
        if not prefilling or not self._cache.enabled:
            return False
        if self._queue.is_overdue(candidate):
            self._sharing.forget(candidate)
            return False
        return self._sharing.awaits(candidate, prefilling, self.matched)

    def _take_pages(self, sequence: Sequence, running: Collection[Sequence], batch: StepBatch) -> bool:
        """Lease the cached prefix and allocate the pages for the rest; False where they are not to be had now."""
        cache, page_size = self._cache, self._page_size
        recall(sequence, cache)
        lease = cache.match(sequence.key(sequence.matchable), sequence.namespace, priority=sequence.priority)
        total = -(-sequence.length // page_size)
        needed = total - len(lease.pages)
        short = self.room(running) < needed
        if short and lease.tail is not None:
            lease.drop_tail()  # its page may be just the one that is missing
            short = self.room(running) < needed
        if short:
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
            spared = sequence.spared if cache.enabled else 0
            sequence.cached_tokens = sequence.computed + spared
            key = sequence.key(sequence.matchable)
            reusable = self._oracle.reusable(key, sequence.namespace)
            sequence.reusable_tokens = max(sequence.computed, reusable) + spared
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
        at, first = lease.length * TOKEN_BYTES, wanted[:TOKEN_BYTES]
        for other in running:
            if other.tokens[at : at + TOKEN_BYTES] != first:
                continue
            # A page is in one place of the tree, so whoever shares the last of the lease's pages shares all of them.
            if other.computed <= lease.length + slots or other.namespace != sequence.namespace or other.arriving:
                continue
            if whole and other.pages[whole - 1] != lease.pages[-1]:
                continue
            common = common_tokens(wanted, other.slice(lease.length, min(other.computed, lease.length + most)))
            if common > slots:
                best, slots = Tail(other.pages[whole], common), common
        return best
