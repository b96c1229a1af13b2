"""What a cache alone could give on a trace: LRU, the optimum that knows the future, and a cache without end.

Requests one by one in order of arrival, in the trace's blocks: no scheduler, no running set. Called by `palmette
simulate`; the counting is radix_cache/belady.py's.
"""

from __future__ import annotations

from collections.abc import Sequence

from palmette.radix_cache.belady import belady_hits, infinite_hits, policy_hits
from palmette.radix_cache.eviction import LRU
from palmette.runtime.simulation.report import Bounds
from palmette.runtime.simulation.traces import Trace


def bounds(trace: Trace, pools: Sequence[int]) -> list[Bounds]:
    """For each pool size, in tokens. Rates are shares of all prompt tokens, as an Outcome's hit rate is."""
    paths = [request.blocks for request in trace.requests]
    arrivals = [request.arrival for request in trace.requests]

    def rate(blocks: int) -> float:
        return min(1.0, blocks * trace.block_tokens / trace.prompt_tokens)

    infinite = rate(infinite_hits(paths))
    found = []
    for pool in pools:
        capacity = pool // trace.block_tokens
        lru = rate(policy_hits(paths, capacity, LRU(), arrivals)) if capacity else 0.0
        found.append(Bounds(pool, lru, rate(belady_hits(paths, capacity)), infinite))
    return found
