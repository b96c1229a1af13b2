"""What a program's calls used, added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from palmette.runtime.messages.replies import Usage


@dataclass(frozen=True, slots=True)
class ProgramUsage:
    """Totals in tokens over `calls` generations and selections."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reusable_tokens: int = 0  # what an infinite cache would have reused
    computed_tokens: int = 0

    @classmethod
    def of(cls, usages: Iterable[Usage]) -> ProgramUsage:
        total = cls()
        for usage in list(usages):
            total += cls(
                1,
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.cached_tokens,
                usage.reusable_tokens,
                usage.computed_tokens,
            )
        return total

    def __add__(self, other: ProgramUsage) -> ProgramUsage:
        return ProgramUsage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reusable_tokens + other.reusable_tokens,
            self.computed_tokens + other.computed_tokens,
        )

    @property
    def reuse(self) -> float:
        """The share of the reusable prompt tokens that was reused; 1.0 where nothing could be."""
        return self.cached_tokens / self.reusable_tokens if self.reusable_tokens else 1.0
