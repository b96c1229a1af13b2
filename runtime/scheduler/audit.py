"""What must hold between the running set and the cache, checked from scratch, and what is wrong taken out of use.

Called by the core, which fails the requests concerned.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from palmette.radix_cache.cache import Lease, RadixCache
from palmette.radix_cache.invariants import Violation, check_invariants
from palmette.radix_cache.quarantine import quarantine as take_out
from palmette.runtime.scheduler.running import RunningSet
from palmette.runtime.scheduler.sequence import Sequence

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Findings:
    """Empty (false) where all is well. `orphans`: leases that no running sequence holds."""

    violations: list[Violation]
    orphans: set[Lease]

    def __bool__(self) -> bool:
        return bool(self.violations or self.orphans)

    def __str__(self) -> str:
        orphans = [f"a lease of {lease.length} tokens that no request holds" for lease in self.orphans]
        return "; ".join([*map(str, self.violations), *orphans])


def inspect(cache: RadixCache, running: RunningSet) -> Findings:
    private = [sequence.pages[len(sequence.lease.pages) :] for sequence in running if sequence.lease is not None]
    leases = {sequence.lease for sequence in running}
    for held in running.held():
        private.append([*held.private])
        leases.add(held.lease)
    return Findings(check_invariants(cache, private), cache.leases - leases)


def quarantine(findings: Findings, cache: RadixCache, running: RunningSet) -> list[Sequence]:
    """Drops damaged subtrees, and never uses damaged pages again. The sequences that hold some of them must fail."""
    log.error("radix cache: %s", findings)
    pages = [page for violation in findings.violations for page in violation.pages]
    nodes = [node for violation in findings.violations for node in violation.nodes]
    lost = take_out(cache, pages, nodes, findings.orphans)
    damaged = cache.pool.quarantined
    return [sequence for sequence in running if sequence.lease in lost or not damaged.isdisjoint(sequence.pages)]
