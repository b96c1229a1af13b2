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
        self._seconds: dict[Part, float] = dict.fromkeys(("receive", "plan", "execute", "commit"), 0.0)

    @contextmanager
    def time(self, part: Part) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - start

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
        )
