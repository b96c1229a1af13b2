"""The seam between the workloads and a system under test. Implemented by openai_server.py and engine.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Arrival:
    """Output tokens that came together. `at`: seconds of time.perf_counter."""

    at: float
    count: int


@dataclass(frozen=True)
class Completion:
    """One answered call. `arrivals` are in order and hold at least one token."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    started: float
    finished: float
    arrivals: tuple[Arrival, ...]
    cached_tokens: int | None  # as the system reports it
    exact_ids: bool = True  # False: `tokens` are re-encoded text
    text: str = ""

    @property
    def first_token_seconds(self) -> float:
        return self.arrivals[0].at - self.started

    @property
    def inter_token_seconds(self) -> list[float]:
        """The gap before each token but the first; tokens that came together share theirs."""
        gaps: list[float] = []
        for before, after in zip(self.arrivals, self.arrivals[1:], strict=False):
            gaps += [(after.at - before.at) / after.count] * after.count
        return gaps

    @property
    def decode_rate(self) -> float:
        """Tokens a second behind the first arrival. Raises ValueError where everything came at once."""
        seconds = self.arrivals[-1].at - self.arrivals[0].at
        if seconds <= 0:
            raise ValueError(f"{len(self.tokens)} tokens came in one piece; a decode rate needs a stream.")
        return sum(arrival.count for arrival in self.arrivals[1:]) / seconds


class DriverError(Exception):
    """The system refused a call or broke the stream; the message has its words."""


class Driver(Protocol):
    """A system that is ready. All calls come from one event loop."""

    @property
    def name(self) -> str: ...

    async def complete(self, prompt: Sequence[int], max_tokens: int, schema: str | None = None) -> Completion:
        """Exactly `max_tokens` greedy tokens behind `prompt`. Raises DriverError.

        With a JSON schema, whose instance the output is to be, at most so many.
        """
        ...

    async def reset(self) -> None:
        """Forget cached prefixes, where the system can; runs don't share tokens, so this is for steadiness
        only.
        """
        ...

    async def close(self) -> None: ...
