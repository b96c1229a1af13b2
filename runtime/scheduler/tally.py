"""Totals of an engine since its start, and the seconds of each part of the step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from palmette.runtime.messages.replies import Counters, Usage
from palmette.runtime.scheduler.targets import Targets

Part = Literal["receive", "plan", "execute", "commit"]


class Tally:
    """`finished`, `failed` and `aborted` are requests, each counted once, by what it was answered."""

    def __init__(self) -> None:
        self.steps = 0
        self.finished = 0
        self.failed = 0
        self.aborted = 0
        self.targeted = 0
        self.in_time = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.reusable_tokens = 0
        self.computed_tokens = 0
        self.completion_tokens = 0
        self.decode_rows = 0
        self.prefill_rows = 0
        self.prefill_tokens = 0
        self._batch_sizes: list[int] = []
        self._seconds: dict[Part, float] = dict.fromkeys(("receive", "plan", "execute", "commit"), 0.0)

    @contextmanager
    def time(self, part: Part) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - start

    def note_batch(self, rows: int, decodes: int, tokens: int) -> None:
        """A step of so many rows, of which so many decode, over so many tokens."""
        self.decode_rows += decodes
        self.prefill_rows += rows - decodes
        self.prefill_tokens += tokens - decodes
        size = (rows - 1).bit_length()
        while len(self._batch_sizes) <= size:
            self._batch_sizes.append(0)
        self._batch_sizes[size] += 1

    def finish(self, targets: Targets, usage: Usage) -> None:
        """A request that was answered in full."""
        self.finished += 1
        if targets:
            self.targeted += 1
            self.in_time += targets.met(usage)

    def add(self, usage: Usage) -> None:
        """The tokens of a sequence that ran and has ended, however."""
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.reusable_tokens += usage.reusable_tokens
        self.computed_tokens += usage.computed_tokens
        self.completion_tokens += usage.completion_tokens

    def counters(
        self,
        *,
        running: int,
        waiting: int,
        pages_total: int,
        pages_free: int,
        pages_cached: int,
        retractions: int,
        preemptions: int,
        evicted_pages: int,
        quarantined_pages: int,
        tree_resets: int,
        grammar_seconds: float = 0.0,
    ) -> Counters:
        return Counters(
            steps=self.steps,
            running=running,
            waiting=waiting,
            pages_total=pages_total,
            pages_free=pages_free,
            pages_cached=pages_cached,
            evicted_pages=evicted_pages,
            quarantined_pages=quarantined_pages,
            tree_resets=tree_resets,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            reusable_tokens=self.reusable_tokens,
            computed_tokens=self.computed_tokens,
            completion_tokens=self.completion_tokens,
            finished=self.finished,
            failed=self.failed,
            aborted=self.aborted,
            retractions=retractions,
            preemptions=preemptions,
            targeted=self.targeted,
            in_time=self.in_time,
            receive_seconds=self._seconds["receive"],
            plan_seconds=self._seconds["plan"],
            execute_seconds=self._seconds["execute"],
            commit_seconds=self._seconds["commit"],
            grammar_seconds=grammar_seconds,
            decode_rows=self.decode_rows,
            prefill_rows=self.prefill_rows,
            prefill_tokens=self.prefill_tokens,
            batch_sizes=tuple(self._batch_sizes),
        )
