"""Seeded block traces for cache studies: shapes of use that a real trace may not have.

A trace is a list of requests in order of arrival, each a list of block ids; equal ids mean equal blocks in the same
place. Knows no cache. Called by hit_rate.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import accumulate, count
from pathlib import Path
from random import Random

Trace = list[list[int]]


def mooncake(path: Path) -> Trace:
    """The `hash_ids` of a trace in Mooncake's form: a JSON object a line, blocks of 512 tokens."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["hash_ids"] for line in lines]


def mooncake_arrivals(path: Path) -> list[float]:
    """When the requests of a trace in Mooncake's form arrived, in seconds."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["timestamp"] / 1e3 for line in lines]


def mooncake_answers(path: Path) -> list[int]:
    """How many tokens each request of a trace in Mooncake's form generated."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["output_length"] for line in lines]


def chats(requests: int, seed: int) -> Trace:
    """Conversations that arrive at random, go on with probability 0.6 and think for a lognormal time between turns."""
    rng, ids = Random(seed), count(1)
    due: list[tuple[float, int, list[int]]] = []
    trace: Trace = []
    arrival = 0.0
    while len(trace) < requests:
        if not due or due[0][0] > arrival:
            heappush(due, (arrival, next(ids), [0, *_blocks(ids, rng, 8)]))
            arrival += rng.expovariate(1.0)
        now, _, path = heappop(due)
        trace.append(path)
        if rng.random() < 0.6:
            then = now + rng.lognormvariate(5.0, 1.0)
            heappush(due, (then, next(ids), [*path, *_blocks(ids, rng, 3)]))
    return trace


def agents(requests: int, seed: int) -> Trace:
    """Loops of 5 to 40 fast steps, each under one of 12 tool descriptions of 16 blocks."""
    rng, ids = Random(seed), count(1)
    tools = [_blocks(ids, rng, 16) for _ in range(12)]
    due: list[tuple[float, int, list[int], int]] = []
    trace: Trace = []
    arrival = 0.0
    while len(trace) < requests:
        if not due or due[0][0] > arrival:
            heappush(due, (arrival, next(ids), [*rng.choice(tools), *_blocks(ids, rng, 2)], rng.randint(5, 40)))
            arrival += rng.expovariate(0.05)
        now, _, path, left = heappop(due)
        trace.append(path)
        if left:
            then = now + rng.lognormvariate(1.0, 0.8)
            heappush(due, (then, next(ids), [*path, *_blocks(ids, rng, 2)], left - 1))
    return trace


def documents(requests: int, seed: int) -> Trace:
    """Questions about one of 4,000 documents of about 24 blocks, chosen by Zipf's law."""
    rng, ids = Random(seed), count(1)
    texts = [[0, *_blocks(ids, rng, 24)] for _ in range(4000)]
    weights = list(accumulate(1 / rank for rank in range(1, len(texts) + 1)))
    return [[*text, next(ids)] for text in rng.choices(texts, cum_weights=weights, k=requests)]


def scans(requests: int, seed: int) -> Trace:
    """Chats, half of whose traffic is a batch job that reads documents once each."""
    rng, ids = Random(seed), count(10**8)
    trace: Trace = []
    for request in chats(requests // 2, seed):
        trace += [request, [0, *_blocks(ids, rng, 24)]]
    return trace


SYNTHETIC: dict[str, Callable[[int, int], Trace]] = {
    "chats": chats,
    "agents": agents,
    "documents": documents,
    "scans": scans,
}


def _blocks(ids: Iterator[int], rng: Random, mean: int) -> list[int]:
    """New blocks, geometric in number, at least one."""
    length = 1
    while rng.random() > 1 / mean:
        length += 1
    return [next(ids) for _ in range(length)]
