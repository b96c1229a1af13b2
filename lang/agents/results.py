"""What an agent did: its steps, how it ended, and its answer. Filled by the loop (loop.py), read by programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from palmette.lang.errors import ProgramError
from palmette.lang.state import ProgramState
from palmette.lang.tools.tool import ToolCall, ToolResult
from palmette.lang.traces.trace import Trace
from palmette.lang.usage import ProgramUsage
from palmette.runtime.errors import PalmetteError

Ended = Literal["answered", "steps", "tokens", "failed"]


@dataclass(frozen=True, slots=True)
class AgentStep:
    """One turn of the model, and what came of its calls, in their order."""

    thought: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]


@dataclass(slots=True)
class AgentResult:
    """What an agent did. `ended`: "answered"; at its limit of "steps" or "tokens", where it was made to answer with
    what it knew; or "failed". Steps made before a failure stay readable; reading `answer` raises `error`."""

    state: ProgramState
    steps: list[AgentStep] = field(default_factory=list)
    ended: Ended = "failed"
    usage: ProgramUsage = field(default_factory=ProgramUsage)
    error: PalmetteError | None = None
    _answer: Any = None

    @property
    def answer(self) -> Any:
        """The answer: text, or a value of the agent's answer type."""
        if self.error is not None:
            raise self.error.again() if isinstance(self.error, ProgramError) else self.error
        return self._answer

    def trace(self) -> Trace:
        """Each call of the model and of the tools; see lang/traces/trace.py."""
        return self.state.trace()

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of every step, in order."""
        return [call for step in self.steps for call in step.calls]

    def __repr__(self) -> str:
        answer = f" answer={self._answer!r:.60}" if self.error is None else ""
        return f"<AgentResult {self.ended} after {len(self.steps)} steps{answer}>"
