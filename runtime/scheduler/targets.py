"""What a request asks of time: to its first token, a token, to its end; and whether it was given that.

Leaf of the scheduler: knows figures, not sequences. Used by intake, the deadline policy, chunking and the tally.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from palmette.runtime.messages.replies import Usage


@dataclass(frozen=True, slots=True)
class Targets:
    """Seconds: from arrival to the first token, a token after it, from arrival to the end. False where none is set."""

    ttft: float | None = None
    tpot: float | None = None
    deadline: float | None = None

    def __bool__(self) -> bool:
        return not (self.ttft is None and self.tpot is None and self.deadline is None)

    def start_within(self, outputs: int) -> float:
        """Seconds from arrival by which the first token must come, `outputs` more to follow; inf without a target."""
        by_end = math.inf if self.deadline is None else self.deadline - max(0, outputs - 1) * (self.tpot or 0.0)
        return min(math.inf if self.ttft is None else self.ttft, by_end)

    def met(self, usage: Usage) -> bool:
        """Whether a finished request was given all that it asked for."""
        gaps = usage.completion_tokens - 1
        token = (usage.total_seconds - usage.first_token_seconds) / gaps if gaps > 0 else 0.0
        return (
            (self.ttft is None or usage.first_token_seconds <= self.ttft)
            and (self.tpot is None or token <= self.tpot)
            and (self.deadline is None or usage.total_seconds <= self.deadline)
        )


NO_TARGETS = Targets()
