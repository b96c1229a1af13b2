"""Eviction: the order in which cached leaves are given up, and the policies that make it."""

from palmette.radix_cache.eviction.order import SLACK as SLACK
from palmette.radix_cache.eviction.order import EvictionOrder as EvictionOrder
from palmette.radix_cache.eviction.order import EvictionPolicy as EvictionPolicy
from palmette.radix_cache.eviction.order import Rank as Rank
from palmette.radix_cache.eviction.policies import LRU as LRU
from palmette.radix_cache.eviction.registry import EvictionName as EvictionName
from palmette.radix_cache.eviction.registry import eviction_policy as eviction_policy
