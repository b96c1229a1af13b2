"""Millions of random operations on the radix cache, one seed, in plain Python: `make soak`.

The same model as the rule machine's (tests/radix_cache/cache_model.py). Counts are checked after each operation, what
the operation itself gives back within it, everything from scratch every 1,000. Page size, pool, pins' share and the
eviction policy (recency, or the default one that learns) change every 20,000 operations; the model starts anew then,
and must come out empty. A failure names the seed and the operation, so that `--seed S --operations N` shows it again.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "radix_cache"))

from cache_model import BASES, CacheModel

PAGE_SIZES = (1, 2, 3, 4, 16, 32, 64)
EPOCH = 20_000
TOLD = 500_000
CHECKED = 1_000
THOROUGH = 200  # each so manieth operation compares a match with all paths of the tree
MOST_RUNNING = 8


class Driver:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.model = self.new_model(PAGE_SIZES[0])
        free = (self.match, self.match_again, self.evict, self.pin, self.unpin, self.hint, self.score, self.wait)
        running = (self.run_the_newest, self.fork, self.truncate, self.compute, self.decode, self.insert,
                   self.free_losers, self.finish, self.drop)  # fmt: skip
        rare = (self.clear, self.ask_too_much)
        weights = {self.match: 6, self.match_again: 6, self.compute: 8, self.decode: 8, self.finish: 6, self.insert: 6}
        self.verbs: list[Callable[[], None]] = [
            verb for verb in (*free, *running) for _ in range(5 * weights.get(verb, 3))
        ] + list(rare)
        self.needs_running = set(running)

    def new_model(self, page_size: int) -> CacheModel:
        pages = max(2, self.random.randint(40, 400) * max(1, page_size // 8) // page_size)
        share, eviction = self.random.choice((0.1, 0.4, 1.0)), self.random.choice(("lru", "program"))
        return CacheModel(pages, page_size, thorough=False, pinned_share=share, eviction=eviction)

    def operation(self) -> None:
        verb = self.random.choice(self.verbs)
        if verb in self.needs_running and not self.model.requests:
            verb = self.match
        elif len(self.model.requests) >= MOST_RUNNING:
            verb = self.finish
        if not self.model.prompts:
            verb = self.match
        verb()
        self.counts[verb.__name__] += 1
        self.model.check_counts()

    # Verbs, with arguments drawn

    def index(self) -> int:
        return self.random.randrange(1000)

    def cut(self) -> int:
        return self.random.choice((0, 0, 0, 1, 4, 5))

    def match(self) -> None:
        more = self.random.choices((1, 2, 256, 257), k=self.random.randrange(7))
        namespace = self.random.choice(("", "", "other"))
        self.model.match(self.random.randrange(len(BASES)), self.random.random(), more, namespace)

    def match_again(self) -> None:
        self.model.match_again(self.index(), self.cut())

    def run_the_newest(self) -> None:
        self.model.run_the_newest()

    def fork(self) -> None:
        self.model.fork(self.index(), self.random.choices((1, 2, 257), k=self.random.randint(1, 5)))

    def truncate(self) -> None:
        self.model.truncate(self.index(), self.random.choice((1, 3, 4, 9, 17, 70)))

    def compute(self) -> None:
        self.model.compute(self.index(), self.random.choice((1, 4, 7, 50, 1000)))

    def decode(self) -> None:
        self.model.decode(self.index(), self.random.choice((1, 2, 257)))

    def insert(self) -> None:
        self.model.insert(self.index())

    def free_losers(self) -> None:
        self.model.free_losers(self.index())

    def finish(self) -> None:
        self.model.finish(self.index())

    def drop(self) -> None:
        self.model.drop(self.index())

    def evict(self) -> None:
        self.model.evict(self.random.random() ** 2)

    def ask_too_much(self) -> None:
        self.model.ask_too_much()

    def clear(self) -> None:
        self.model.clear()

    def pin(self) -> None:
        self.model.pin(self.index(), self.cut(), self.random.choice((0.0, 3.0, 10.0, 50.0)))

    def unpin(self) -> None:
        self.model.unpin(self.index(), self.cut())

    def hint(self) -> None:
        self.model.hint(self.index(), self.cut(), self.random.choice((0.5, 5.0)), self.random.randrange(4))

    def score(self) -> None:
        self.model.score(self.index(), self.random.randint(1, 20), self.random.choice((1, 5, 40)))

    def wait(self) -> None:
        self.model.wait(self.random.choice((0.5, 2.0, 20.0)))


def soak(seed: int, operations: int) -> None:
    driver, start = Driver(seed), time.process_time()
    evicted = 0
    for done in range(operations):
        if done % EPOCH == 0 and done:
            evicted += driver.model.cache.evicted_pages
            driver.model.end()
            driver.model = driver.new_model(PAGE_SIZES[done // EPOCH % len(PAGE_SIZES)])
        if done % TOLD == 0 and done:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            spent = time.process_time() - start
            told = f"{done:,} operations, {evicted:,} pages evicted, {spent:.0f} s of CPU, {peak} MiB at most"
            print(told, flush=True)
        driver.model.thorough = done % THOROUGH == 0
        try:
            driver.operation()
            if done % CHECKED == 0:
                driver.model.check()
        except BaseException:
            print(f"failed in operation {done:,} of seed {seed}, page size {driver.model.page_size}", flush=True)
            raise
    driver.model.check()
    driver.model.end()
    spent = time.process_time() - start
    print(f"{operations:,} operations of seed {seed}: no violation; {spent:.0f} s of CPU")
    print(", ".join(f"{name} {number:,}" for name, number in driver.counts.most_common()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=10_000_000)
    given = parser.parse_args()
    soak(given.seed, given.operations)


if __name__ == "__main__":
    main()
