"""Eviction policies by name: what a configuration may ask for. Called by runtime/engine.py, simulations, benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from palmette.radix_cache.eviction.learned import HitDensity
from palmette.radix_cache.eviction.order import EvictionPolicy
from palmette.radix_cache.eviction.policies import LFU, LRU, SLRU, TTL, CostAware, Priority
from palmette.radix_cache.eviction.programs import ProgramAware
from palmette.runtime.config import Eviction
from palmette.runtime.errors import InvalidRequest

EvictionName = Eviction

_POLICIES: dict[str, Callable[[], EvictionPolicy]] = {
    "program": lambda: ProgramAware(HitDensity()),
    "learned": HitDensity,
    "lru": LRU,
    "lfu": LFU,
    "slru": SLRU,
    "priority": Priority,
    "ttl": TTL,
    "cost": CostAware,
}
assert set(_POLICIES) == set(get_args(EvictionName)), "every name has its policy"


def eviction_policy(name: str) -> EvictionPolicy:
    """A new policy, for one cache. Raises InvalidRequest for a name that is none, listing those there are."""
    make = _POLICIES.get(name)
    if make is None:
        raise InvalidRequest(
            f"There is no eviction policy {name!r}.",
            hint=f"The policies are: {', '.join(_POLICIES)}.",
            param="eviction",
        )
    return make()
