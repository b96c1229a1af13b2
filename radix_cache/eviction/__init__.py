"""Eviction: the order in which cached leaves are given up, and the policies that make it."""

from palmette.radix_cache.eviction.order import SLACK, EvictionOrder, EvictionPolicy, Rank
from palmette.radix_cache.eviction.policies import LRU
from palmette.radix_cache.eviction.registry import EvictionName, eviction_policy

__all__ = ["LRU", "SLACK", "EvictionName", "EvictionOrder", "EvictionPolicy", "Rank", "eviction_policy"]
