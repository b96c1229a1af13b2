"""Hit counts of whole traces against a cache alone: of the best there can be, of an infinite cache, of a policy.

A trace is a sequence of requests in order of arrival, each a sequence of block ids; a block is hit where it and all
before it are cached when its request arrives. After that the whole request is in the cache, which is cut down to its
capacity before the next arrives. No steps, no running set: what a scheduler adds is runtime/simulation. Torch-free.
Called by `palmette simulate` and benchmarks.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.eviction import EvictionPolicy
from palmette.runtime.messages.tokens import pack

Requests = Sequence[Sequence[int]]
NAMESPACE = "trace"
ABOVE_ROOTS = -1
ONE_MORE = pack([2**31 - 1])


class _Trie:
    """Every block of a trace with its path, numbered from 0: `paths` by request, `parent` by number (a root: itself).

    Equal ids behind different prefixes are different blocks.
    """

    def __init__(self, requests: Requests) -> None:
        self.parent = array("q")
        self.paths: list[list[int]] = []
        numbers: dict[tuple[int, int], int] = {}
        for request in requests:
            path: list[int] = []
            at = ABOVE_ROOTS
            for block in request:
                number = numbers.setdefault((at, block), len(numbers))
                if number == len(self.parent):
                    self.parent.append(number if at == ABOVE_ROOTS else at)
                path.append(number)
                at = number
            self.paths.append(path)


def infinite_hits(requests: Requests) -> int:
    """Blocks hit where nothing is ever evicted."""
    trie = _Trie(requests)
    return sum(map(len, requests)) - len(trie.parent)


def belady_hits(requests: Requests, capacity: int) -> int:
    """The most blocks that any schedule of evictions can hit with `capacity` blocks: exact, not only a bound.

    Evicts the block whose next use is furthest. A hit needs its block kept from one use to the next, and the intervals
    kept over any moment are at most `capacity`: the most intervals are kept by dropping, wherever there are too many,
    those that end last (Belady 1966 with bypassing; Carlisle and Lloyd 1995 for intervals). A block is used whenever
    one below it is, so its interval never ends later: with the deeper block dropped first among equals, what is kept
    is closed under prefixes, and the optimum of free blocks is one of trees.
    """
    trie = _Trie(requests)
    never = len(requests)
    following = _next_uses(trie, never)
    cached = array("q", [-1]) * len(trie.parent)  # next use of a cached block
    below = array("l", [0]) * len(trie.parent)  # cached children
    leaves: list[tuple[int, int]] = []
    hits = size = 0
    for path, uses in zip(trie.paths, following, strict=True):
        if not path:
            continue
        for block, use in zip(path, uses, strict=True):
            if cached[block] >= 0:
                hits += 1
            else:
                size += 1
                if trie.parent[block] != block:
                    below[trie.parent[block]] += 1
            cached[block] = use
        if not below[path[-1]]:
            heappush(leaves, (-uses[-1], path[-1]))
        while size > capacity:
            use, block = heappop(leaves)
            if cached[block] < 0 or below[block]:
                continue
            if cached[block] != -use:
                heappush(leaves, (-cached[block], block))
                continue
            cached[block] = -1
            size -= 1
            above = trie.parent[block]
            if above != block:
                below[above] -= 1
                if not below[above]:
                    heappush(leaves, (-cached[above], above))
    return hits


def _next_uses(trie: _Trie, never: int) -> list[list[int]]:
    """For each block of each request the number of the next request that uses it; `never` where none does."""
    seen = array("q", [never]) * len(trie.parent)
    following: list[list[int]] = []
    for number in range(len(trie.paths) - 1, -1, -1):
        path = trie.paths[number]
        following.append([seen[block] for block in path])
        for block in path:
            seen[block] = number
    following.reverse()
    return following


def policy_hits(
    requests: Requests,
    capacity: int,
    policy: EvictionPolicy,
    arrivals: Sequence[float] | None = None,
    answers: Sequence[int] | None = None,
) -> int:
    """Blocks hit by the real cache under `policy`, a block being a page of one token.

    The policy's clock reads `arrivals`, in seconds, else counts requests; `answers`, where known, tells it how many
    tokens each request generated. Of a request longer than the cache the
    beginning is kept.
    """
    clock = _Clock()
    cache = RadixCache(capacity, 1, eviction=policy, clock=clock.time)
    hits = 0
    for number, request in enumerate(requests):
        clock.now = arrivals[number] if arrivals is not None else float(number)
        key = pack(request)
        lease = cache.match(key + ONE_MORE, NAMESPACE)  # a match never takes the last token: this is it
        hits += lease.length
        kept = request[:capacity]
        own = cache.allocate(len(kept) - lease.length)
        generated = answers[number] if answers is not None else None
        cache.finish(lease, pack(kept), [*lease.pages, *own], generated=generated)
    return hits


class _Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now
