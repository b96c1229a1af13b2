"""The orders in which waiting sequences start: one small class a policy, each over the sequences of one priority.

They know what waits and, by what they are told, what the tree would reuse and how long a prefill takes; nothing of
pages, slots or steps. Called by the queue only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Protocol

from palmette.runtime import config
from palmette.runtime.scheduler.prefixes import WaitingPrefixes
from palmette.runtime.scheduler.ranking import Ranking
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.tenants import TenantShares


class Policy(Protocol):
    """Holds the waiting sequences of one priority, and says who is next.

    `aged`: its order could pass a sequence over forever, so that the queue counts and bounds that. `programs_first`: it
    is there for reuse, so that calls that go on with a program come before those that begin one.
    """

    aged: bool
    programs_first: bool

    def add(self, sequence: Sequence, matched: int) -> None:
        """`matched`: tokens of it that the tree holds now; 0 where the policy is not aged."""

    def remove(self, sequence: Sequence) -> None: ...

    def candidates(self) -> Iterator[Sequence]:
        """Best first. The one that was yielded last may be removed before the next is asked for."""

    def started(self, sequence: Sequence, tokens: int) -> None:
        """One of them, already removed, was admitted with `tokens` tokens to prefill."""

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        """The tree now holds all of `key`; its first `known` tokens it held before."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What policies may ask. `peek`: tokens of a sequence that the tree holds; `evictions`: a count that rises when
    the tree loses something; `prefill_seconds`: of so many tokens; `running`: the sequences that run; `shares`: what
    tenants were given, of all priorities."""

    peek: Callable[[Sequence], int]
    evictions: Callable[[], int]
    clock: Callable[[], float]
    prefill_seconds: Callable[[int], float]
    running: Iterable[Sequence]
    shares: TenantShares = field(default_factory=TenantShares)


def new_policy(name: config.Policy, facts: Facts) -> Policy:
    match name:
        case "first_come" | "priority":
            return FirstCome()
        case "longest_prefix":
            return LongestPrefix(facts)
        case "depth_first_weight":
            return DepthFirst()
        case "shortest_remaining":
            return ShortestRemaining(facts)
        case "deadline":
            return EarliestDeadline(facts)
        case "fair_share":
            return FairShare(facts)


class FirstCome:
    """In order of arrival. Under "priority" too: what sets that apart is whom it may retract."""

    aged = programs_first = False

    def __init__(self) -> None:
        self._order = Ranking()

    def add(self, sequence: Sequence, matched: int) -> None:
        self._order.put(sequence, 0)

    def remove(self, sequence: Sequence) -> None:
        self._order.remove(sequence)

    def candidates(self) -> Iterator[Sequence]:
        return iter(self._order)

    def started(self, sequence: Sequence, tokens: int) -> None:
        """Nothing depends on it."""

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        """Nothing depends on it."""


class Matches:
    """What the tree holds of each waiting sequence, kept up to date: growth is told, loss is looked for when asked."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._prefixes = WaitingPrefixes()
        self._known: dict[Sequence, tuple[int, int]] = {}  # tokens, and the count of evictions when they were there

    def add(self, sequence: Sequence, matched: int) -> None:
        self._prefixes.add(sequence)
        self._known[sequence] = (matched, self._facts.evictions())

    def remove(self, sequence: Sequence) -> None:
        del self._known[sequence]
        self._prefixes.remove(sequence)

    def grown(self, namespace: str, key: bytes, known: int) -> Iterator[tuple[Sequence, int]]:
        """Those of which the tree holds more than before, and how much."""
        for sequence, shared in self._prefixes.sharing(namespace, key, known):
            before, evictions = self._known[sequence]
            matched = min(shared, sequence.matchable - 1)
            if matched > before:
                self._known[sequence] = (matched, evictions)
                yield sequence, matched

    def now(self, sequence: Sequence) -> int:
        matched, evictions = self._known[sequence]
        if self._facts.evictions() != evictions:
            matched = self._facts.peek(sequence)
            self._known[sequence] = (matched, self._facts.evictions())
        return matched


class LongestPrefix:
    """The one of which the tree holds most goes first: what is cached is used while it is."""

    aged = programs_first = True

    def __init__(self, facts: Facts) -> None:
        self._matches = Matches(facts)
        self._order = Ranking()

    def add(self, sequence: Sequence, matched: int) -> None:
        self._matches.add(sequence, matched)
        self._order.put(sequence, self._rank(sequence, matched))

    def remove(self, sequence: Sequence) -> None:
        self._order.remove(sequence)
        self._matches.remove(sequence)

    def candidates(self) -> Iterator[Sequence]:
        for sequence in self._order:
            rank = self._rank(sequence, self._matches.now(sequence))
            if rank > self._order.rank(sequence):  # some of it was evicted: others may be before it
                self._order.put(sequence, rank)
            else:
                yield sequence

    def started(self, sequence: Sequence, tokens: int) -> None:
        """Nothing depends on it."""

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        for sequence, matched in self._matches.grown(namespace, key, known):
            self._order.put(sequence, self._rank(sequence, matched))

    def _rank(self, sequence: Sequence, matched: int) -> float:
        return -matched


class ShortestRemaining(LongestPrefix):
    """The one with the fewest tokens left goes first: to prefill, and to be given at most."""

    programs_first = False

    def _rank(self, sequence: Sequence, matched: int) -> float:
        return sequence.length - matched + sequence.outputs_left


class DepthFirst:
    """Depth first over the tree of waiting prefixes, where most wait first; weight: sequences that wait below.

    The branch that was served last is finished before another is begun. The order is made anew when there are
    arrivals, and holds while sequences only leave.
    """

    aged = programs_first = True

    def __init__(self) -> None:
        self._prefixes = WaitingPrefixes()
        self._last: tuple[str, bytes] | None = None
        self._order: dict[Sequence, None] = {}
        self._changed = False

    def add(self, sequence: Sequence, matched: int) -> None:
        self._prefixes.add(sequence)
        self._changed = True

    def remove(self, sequence: Sequence) -> None:
        self._prefixes.remove(sequence)
        self._order.pop(sequence, None)

    def candidates(self) -> Iterator[Sequence]:
        if self._changed:
            self._order = dict.fromkeys(self._prefixes.depth_first(self._last))
            self._changed = False
        yield from tuple(self._order)

    def started(self, sequence: Sequence, tokens: int) -> None:
        self._last = (sequence.namespace, sequence.key(sequence.matchable))

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        """Nothing depends on it."""


class EarliestDeadline:
    """The earliest deadline for a first token goes first; those that can't make it any more go last.

    A deadline can't be made if a prefill that began now, alone, would end behind it. Those without one stand
    between, in order of arrival.
    """

    aged = True
    programs_first = False

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._matches = Matches(facts)
        self._feasible = Ranking()
        self._late = Ranking()

    def add(self, sequence: Sequence, matched: int) -> None:
        self._matches.add(sequence, matched)
        self._feasible.put(sequence, sequence.arrival + sequence.targets.start_within(sequence.outputs_left))

    def remove(self, sequence: Sequence) -> None:
        (self._late if sequence in self._late else self._feasible).remove(sequence)
        self._matches.remove(sequence)

    def candidates(self) -> Iterator[Sequence]:
        for sequence in self._feasible:
            prefill = sequence.length - self._matches.now(sequence)
            if self._facts.clock() + self._facts.prefill_seconds(prefill) > self._feasible.rank(sequence):
                self._feasible.remove(sequence)
                self._late.put(sequence, 0)
            else:
                yield sequence
        yield from self._late

    def started(self, sequence: Sequence, tokens: int) -> None:
        """Nothing depends on it."""

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        for _ in self._matches.grown(namespace, key, known):
            pass


class FairShare:
    """The tenant that was given the fewest tokens goes first; of one tenant, in order of arrival."""

    aged = False  # every tenant's turn comes; within a tenant nobody is passed over
    programs_first = False

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._shares = facts.shares
        self._waiting: dict[str, Ranking] = {}  # by tenant; none is empty

    def add(self, sequence: Sequence, matched: int) -> None:
        tenant = sequence.tenant
        if tenant not in self._waiting:
            running = {other.tenant for other in self._facts.running}
            if tenant not in running:
                self._shares.joins(tenant, running | self._waiting.keys())
            self._waiting[tenant] = Ranking()
        self._waiting[tenant].put(sequence, 0)

    def remove(self, sequence: Sequence) -> None:
        waiting = self._waiting[sequence.tenant]
        waiting.remove(sequence)
        if not waiting:
            del self._waiting[sequence.tenant]

    def candidates(self) -> Iterator[Sequence]:
        self._shares.settle(self._facts.running)
        turns = {tenant: iter(waiting) for tenant, waiting in self._waiting.items()}
        heap = [(self._shares.given(tenant), tenant) for tenant in turns]
        heapify(heap)
        while heap:
            tenant = heap[0][1]
            sequence = next(turns[tenant], None)
            if sequence is None:
                heappop(heap)
                continue
            yield sequence
            heapreplace(heap, (self._shares.given(tenant), tenant))

    def started(self, sequence: Sequence, tokens: int) -> None:
        self._shares.charge_prefill(sequence.tenant, tokens)

    def grown(self, namespace: str, key: bytes, known: int) -> None:
        """Nothing depends on it."""
