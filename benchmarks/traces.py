"""Seeded block traces for cache studies: shapes of use that a real trace may not have.

A trace is a list of requests in order of arrival, each a list of block ids; equal ids mean equal blocks in the same
place. Knows no cache. Called by hit_rate.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, count
from pathlib import Path
from random import Random

Trace = list[list[int]]


@dataclass(frozen=True)
class Recorded:
    """A trace with what else is known of it: arrivals in seconds, else requests are counted; tokens of the answers."""

    trace: Trace
    arrivals: list[float] | None = None
    answers: list[int] | None = None

    def part(self, begin: int, end: int) -> Recorded:
        """Requests `begin` … `end` − 1."""
        return Recorded(
            self.trace[begin:end],
            self.arrivals[begin:end] if self.arrivals is not None else None,
            self.answers[begin:end] if self.answers is not None else None,
        )


def mooncake(path: Path) -> Recorded:
    """A trace in Mooncake's form: a JSON object a line, `hash_ids` of blocks of 512 tokens, milliseconds."""
    with path.open(encoding="utf-8") as lines:
        requests = [json.loads(line) for line in lines]
    return Recorded(
        [each["hash_ids"] for each in requests],
        [each["timestamp"] / 1e3 for each in requests],
        [each["output_length"] for each in requests],
    )


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


def sessions(requests: int, seed: int, think: Callable[[Random], float], goes_on: Callable[[int], float]) -> Recorded:
    """Conversations, one begun a second: seconds between turns, and the chance that another turn follows so many."""
    rng, ids = Random(seed), count(1)
    due: list[tuple[float, int, list[int], int]] = []
    trace, arrivals, answers = Trace(), list[float](), list[int]()
    arrival = 0.0
    while len(trace) < requests:
        if not due or due[0][0] > arrival:
            heappush(due, (arrival, next(ids), [0, *_blocks(ids, rng, 8)], 0))
            arrival += rng.expovariate(1.0)
        now, _, path, turns = heappop(due)
        trace.append(path)
        arrivals.append(now)
        answers.append(int(rng.lognormvariate(5.0, 1.0)))
        if rng.random() < goes_on(turns):
            heappush(due, (now + think(rng), next(ids), [*path, *_blocks(ids, rng, 3)], turns + 1))
    return Recorded(trace, arrivals, answers)


def applications(requests: int, seed: int) -> Recorded:
    """Conversations under eight system prompts; how likely they go on and how long they pause is each one's own."""
    rng, ids = Random(seed), count(1)
    kinds = [(_blocks(ids, rng, 6), rng.uniform(0.0, 0.95), rng.uniform(2.0, 6.0)) for _ in range(8)]
    due: list[tuple[float, int, list[int], int]] = []
    trace, arrivals, answers = Trace(), list[float](), list[int]()
    arrival = 0.0
    while len(trace) < requests:
        if not due or due[0][0] > arrival:
            kind = rng.randrange(len(kinds))
            heappush(due, (arrival, next(ids), [*kinds[kind][0], *_blocks(ids, rng, 8)], kind))
            arrival += rng.expovariate(1.0)
        now, _, path, kind = heappop(due)
        trace.append(path)
        arrivals.append(now)
        answers.append(int(rng.lognormvariate(5.0, 1.0)))
        _, goes_on, pause = kinds[kind]
        if rng.random() < goes_on:
            heappush(due, (now + rng.lognormvariate(pause, 0.8), next(ids), [*path, *_blocks(ids, rng, 3)], kind))
    return Recorded(trace, arrivals, answers)


def uniform(requests: int, seed: int) -> Trace:
    """600 documents of 8 blocks, each as likely: nothing can be learned."""
    return [[0, *range(1 + 8 * text, 9 + 8 * text)] for text in Random(seed).choices(range(600), k=requests)]


def loop(requests: int, seed: int) -> Trace:
    """300 documents of 8 blocks in turn: the worst there is for recency."""
    return [[0, *range(1 + 8 * (at % 300), 9 + 8 * (at % 300))] for at in range(requests)]


def drift(requests: int, seed: int) -> Trace:
    """Documents of 8 blocks by Zipf's law; which one is the most popular moves on."""
    rng, texts = Random(seed), 3000
    ranks = rng.choices(range(texts), [1 / rank for rank in range(1, texts + 1)], k=requests)
    chosen = [(rank + at // 20) % texts for at, rank in enumerate(ranks)]
    return [[0, *range(1 + 8 * text, 9 + 8 * text)] for text in chosen]


# What returns when, and who goes on: each as (seconds between turns, chance of another turn behind so many).
MIXES: dict[str, tuple[Callable[[Random], float], Callable[[int], float]]] = {
    "after a minute": (lambda rng: 60.0, lambda turns: 0.6),
    "memoryless": (lambda rng: rng.expovariate(0.01), lambda turns: 0.6),
    "heavy tail": (lambda rng: 5 * rng.paretovariate(0.8), lambda turns: 0.6),
    "the longer the likelier": (lambda rng: rng.lognormvariate(4.5, 1.0), lambda turns: min(0.9, 0.25 + 0.2 * turns)),
    "the longer the rarer": (lambda rng: rng.lognormvariate(4.5, 1.0), lambda turns: max(0.1, 0.9 - 0.2 * turns)),
}
SYNTHETIC: dict[str, Callable[[int, int], Trace]] = {
    "chats": chats,
    "agents": agents,
    "documents": documents,
    "scans": scans,
    "uniform": uniform,
    "loop": loop,
    "drift": drift,
}


def _blocks(ids: Iterator[int], rng: Random, mean: int) -> list[int]:
    """New blocks, geometric in number, at least one."""
    length = 1
    while rng.random() > 1 / mean:
        length += 1
    return [next(ids) for _ in range(length)]
