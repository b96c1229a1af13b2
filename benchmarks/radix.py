"""What the verbs of the radix cache cost, by page size and by number of nodes: match, insert, eviction, memory.

`python -m benchmarks.radix` prints the tables of docs/radix-cache.md; `--quick` a smaller tree, `--eviction program`
under another policy than LRU. CPU time, simulated pages (no KV bytes). Each configuration runs in a process of its
own, so that its resident memory is its own.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.eviction import EvictionName, eviction_policy
from palmette.radix_cache.oracle import ReuseOracle
from palmette.runtime.messages.tokens import TOKEN_BYTES, count, pack

KEY_TOKENS = 8_000
DEPTH = 19  # inner nodes of a trunk, so that a path has at most 20
SEGMENT = 400  # tokens of an inner node
SAMPLES = 300
GC_BYTES = 16  # before each object that the garbage collector knows
STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class Shape:
    leaves: int
    tokens: int  # cached in all, about
    page_size: int

    @property
    def trunks(self) -> int:
        return max(1, self.leaves // 1_000)

    @property
    def leaf_tokens(self) -> int:
        return max(self.page_size + 1, (self.tokens - self.trunks * DEPTH * SEGMENT) // self.leaves)


@dataclass(frozen=True)
class Costs:
    """Medians in microseconds but for `evict`, the mean of a node.

    `object_bytes`: of a node's objects; `node_bytes`: what the process has grown by, a node. Both without token ids
    and page ids.
    """

    shape: Shape
    nodes: int
    tokens: int
    match: float
    table: float
    release: float
    insert: float
    insert_new: float
    evict: float
    pack: float
    object_bytes: float
    node_bytes: float


class Forest:
    """Trunks of DEPTH segments; each leaf hangs below one of its trunk's segments, 1,000 leaves to a trunk."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        self.random = random.Random(seed)
        segment = SEGMENT // shape.page_size * shape.page_size
        self.segment_bytes = max(segment, shape.page_size) * TOKEN_BYTES
        self.trunks = [self.tokens(DEPTH * self.segment_bytes) for _ in range(shape.trunks)]

    def tokens(self, size: int) -> bytes:
        """Random ids, `size` bytes of them."""
        return self.random.randbytes(size)

    def key(self, trunk: bytes, depth: int) -> bytes:
        length = self.random.randint(self.shape.leaf_tokens * 9 // 10, self.shape.leaf_tokens * 11 // 10)
        return trunk[: depth * self.segment_bytes] + self.tokens(length * TOKEN_BYTES)


def run(cache: RadixCache, key: bytes) -> None:
    """A whole request: matched, allocated, inserted, finished."""
    lease = cache.match(key + b"\0\0\0\0", "")
    lease.drop_tail()
    needed = -(-count(key) // cache.page_size) - len(lease.pages)
    cache.finish(lease, key, [*lease.pages, *cache.allocate(needed)])


def measure(shape: Shape, eviction: str) -> Costs:
    forest = Forest(shape)
    spare = 3 * SAMPLES * KEY_TOKENS  # for what is inserted
    pages = (shape.tokens * 13 // 10 + spare) // shape.page_size + 4 * shape.leaves
    cache = RadixCache(pages, shape.page_size, eviction=eviction_policy(eviction))
    gc.collect()
    gc.freeze()
    before, free_list = resident(), sys.getsizeof(cache.pool._free)
    deepest: list[bytes] = []
    for index in range(shape.leaves):
        trunk = forest.trunks[index % len(forest.trunks)]
        depth = DEPTH - index // len(forest.trunks) % DEPTH
        key = forest.key(trunk, depth)
        run(cache, key)
        if depth == DEPTH and len(deepest) < SAMPLES:
            deepest.append(key)
    gc.collect()
    freed = free_list - sys.getsizeof(cache.pool._free)  # it shrinks in leaps
    grown = resident() - before + freed - sum(map(len, deepest)) - TOKEN_BYTES * len(deepest)
    nodes, tokens = cache.tree.node_count, sum(count(node.key) for node in cache.tree.nodes())
    node_bytes = (grown - TOKEN_BYTES * (tokens + cache.cached_pages)) / nodes
    objects = object_bytes(cache) / nodes
    forest.random.shuffle(deepest)
    exact = [key[: KEY_TOKENS * TOKEN_BYTES] for key in deepest]
    match, table, release = time_match(cache, exact)
    insert = time_insert(cache, [branch(forest, key) for key in exact])
    insert_new = time_insert(cache, [forest.tokens(KEY_TOKENS * TOKEN_BYTES) for _ in range(SAMPLES)])
    ids = [random.Random(i).choices(range(50_000), k=KEY_TOKENS) for i in range(20)]
    packing = micro([timed(partial(pack, each)) for each in ids])
    evict = time_evict(cache, shape.leaves)
    return Costs(shape, nodes, tokens, match, table, release, insert, insert_new, evict, packing, objects, node_bytes)


def branch(forest: Forest, key: bytes) -> bytes:
    """A key of the same length that leaves the cached one inside its last nodes."""
    at = len(key) - (forest.random.randint(100, 900)) * TOKEN_BYTES
    return key[:at] + forest.tokens(len(key) - at)


def time_match(cache: RadixCache, keys: Sequence[bytes]) -> tuple[float, float, float]:
    match, table, release = [], [], []
    for key in keys:
        start = time.process_time()
        lease = cache.match(key, "")
        matched = time.process_time()
        lease.pages  # noqa: B018
        read = time.process_time()
        lease.release()
        end = time.process_time()
        match.append(matched - start)
        table.append(read - matched)
        release.append(end - read)
    return micro(match), micro(table), micro(release)


def time_insert(cache: RadixCache, keys: Sequence[bytes]) -> float:
    insert = []
    for key in keys:
        lease = cache.match(key, "")
        lease.drop_tail()
        needed = -(-count(key) // cache.page_size) - len(lease.pages)
        table = [*lease.pages, *cache.allocate(needed)]
        insert.append(timed(partial(cache.insert, lease, key, table)))
        cache.finish(lease, key, table)
    return micro(insert)


def time_evict(cache: RadixCache, leaves: int) -> float:
    """Microseconds a node that goes, over a quarter of `leaves`, in allocations of a step's 512 tokens."""
    cache.allocate(cache.free_count)
    nodes = cache.tree.node_count
    step, kept = 512 // cache.page_size, nodes - leaves // 4
    start = time.process_time()
    while cache.tree.node_count > kept:
        cache.allocate(step)
    spent = time.process_time() - start
    return 1e6 * spent / (nodes - cache.tree.node_count)


def timed(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def micro(seconds: Sequence[float]) -> float:
    return 1e6 * statistics.median(seconds)


def resident() -> int:
    if not STATM.exists():
        return 0
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sharing(page_size: int, chats: int = 60, turns: int = 6, seed: int = 1) -> tuple[float, float]:
    """Shares of the prompt tokens that an infinite token-level cache would have: found by matches, and found if whole
    pages alone were shared. Chats under four system prompts; each turn goes on from the whole of the one before."""
    rng, oracle = random.Random(seed), ReuseOracle()
    cache = RadixCache(chats * turns * 1_500 // page_size + 1_000, page_size)
    systems = [rng.randbytes(rng.randint(20, 300) * TOKEN_BYTES) for _ in range(4)]
    states = [rng.choice(systems) for _ in range(chats)]
    found = whole = reusable = 0
    for _ in range(turns):
        for index in range(chats):
            prompt = states[index] + rng.randbytes(rng.randint(5, 60) * TOKEN_BYTES)
            lease = cache.match(prompt, "")
            whole += lease.length
            found += lease.length + (lease.tail.slots if lease.tail is not None else 0)
            lease.release()
            reusable += oracle.reusable(prompt, "")
            states[index] = prompt + rng.randbytes(rng.randint(5, 120) * TOKEN_BYTES)
            run(cache, states[index])
            oracle.observe(states[index], "")
    return found / reusable, whole / reusable


def object_bytes(cache: RadixCache) -> int:
    """Of the nodes and what hangs at them, without token ids and page ids; entries of the eviction order apart."""
    total = 0
    for node in cache.tree.nodes():
        children = node.children
        parts = [node, node.pages, node.key]
        if node.past is not None:
            parts.append(node.past)
        if children:
            parts += [children, children._nodes, children._heads]
        total += sum(map(sys.getsizeof, parts)) + GC_BYTES * sum(map(gc.is_tracked, parts))
        total -= len(node.key) + TOKEN_BYTES * len(node.pages)
    return total


def in_own_process(shape: Shape, eviction: str) -> Costs:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (shape, eviction))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.radix", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5,000 leaves, 2.5 M tokens")
    parser.add_argument("--page-sizes", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--leaves", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--eviction", choices=get_args(EvictionName), default="lru")
    given = parser.parse_args(arguments)
    leaves = [5_000] if given.quick else given.leaves
    print(
        f"Python {sys.version.split()[0]}; eviction {given.eviction}; "
        f"median of {SAMPLES} (eviction: mean), µs of CPU time; "
        f"keys of {KEY_TOKENS:,} packed tokens, paths of at most {DEPTH + 1} nodes\n"
    )
    print("| page | leaves | nodes | tokens | match | its pages | release | insert a branch | insert all new "
          "| evict a node | pack the key | bytes of a node's objects | bytes a node, resident |")  # fmt: skip
    print("|--:" * 13 + "|")
    for page_size in given.page_sizes:
        for number in leaves:
            c = in_own_process(Shape(number, number * 500, page_size), given.eviction)
            print(
                f"| {page_size} | {number:,} | {c.nodes:,} | {c.tokens / 1e6:.1f} M | {c.match:.1f} | {c.table:.1f} "
                f"| {c.release:.1f} | {c.insert:.1f} | {c.insert_new:.1f} | {c.evict:.1f} | {c.pack:.0f} "
                f"| {c.object_bytes:.0f} | {c.node_bytes:.0f} |",
                flush=True,
            )
    print("\nShare of what an infinite token-level cache reuses, chats of 6 turns:\n")
    print("| page | token-level match | whole pages alone |\n|--:|--:|--:|")
    for page_size in (1, 16, 32, 64, 256):
        token_level, whole_pages = sharing(page_size)
        print(f"| {page_size} | {token_level:.3f} | {whole_pages:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
