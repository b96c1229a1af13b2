"""The loop of an agent: turns of the model, calls of tools, until there is an answer or a limit is reached.

Written once, as a generator of what has to be waited for, and driven in a thread or in a coroutine. How a turn is
written and read is in turns.py and native_turns.py. While tools run, the cache is told that the branch waits, and
keeps it. Made and run by agent.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from palmette.lang.agents.results import AgentResult, AgentStep, Ended
from palmette.lang.agents.turns import Turn, Turns
from palmette.lang.loop import language_loop, run_on
from palmette.lang.state import ProgramState
from palmette.lang.tools.tool import ToolCall, ToolResult
from palmette.lang.types import NotOfType
from palmette.lang.usage import ProgramUsage

PIN_SLACK = 5.0
"""Seconds for which a branch stays pinned beyond its tools' time-out."""


class RunsCalls(Protocol):
    """What the loop needs of tools."""

    async def arun(self, calls: Sequence[ToolCall]) -> list[ToolResult]: ...

    def expected_seconds(self, calls: Sequence[ToolCall]) -> float | None: ...

    def longest_seconds(self, calls: Sequence[ToolCall]) -> float: ...


@dataclass(frozen=True, slots=True)
class _Read:
    """Wait for a variable; gives its value and the tokens that were written for it."""

    name: str


@dataclass(frozen=True, slots=True)
class _Run:
    """Run calls; gives their results."""

    calls: Sequence[ToolCall]


_Loop = Generator[_Read | _Run, Any, None]


@dataclass(frozen=True, slots=True)
class AgentLoop:
    """`steps`: turns with calls at most; `tokens`: that the model writes at most; `least_calls`: turns that must call;
    `result_characters`: more of a tool's result is cut."""

    name: str
    tools: RunsCalls
    turns: Turns
    steps: int
    tokens: int | None
    least_calls: int
    result_characters: int
    on_step: Callable[[AgentStep], object] | None

    def drive(self, s: ProgramState, task: str, result: AgentResult) -> None:
        """Work on `task` on the state `s`, in this thread, which waits; what is done goes into `result`."""
        loop = self._run(s, task, result)
        given: Any = None
        while True:
            try:
                wanted = loop.send(given)
            except StopIteration:
                return
            if isinstance(wanted, _Read):
                given = s.get_var(wanted.name), s.get_meta_info(wanted.name)["completion_tokens"]
            else:
                given = run_on(language_loop(), self._ran(s, wanted.calls))

    async def adrive(self, s: ProgramState, task: str, result: AgentResult) -> None:
        """`drive` for coroutines."""
        loop = self._run(s, task, result)
        given: Any = None
        while True:
            try:
                wanted = loop.send(given)
            except StopIteration:
                return
            if isinstance(wanted, _Read):
                given = await s.aget(wanted.name), (await s.aget_meta_info(wanted.name))["completion_tokens"]
            else:
                given = await self._ran(s, wanted.calls)

    async def _ran(self, s: ProgramState, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The calls' results. Where the state fails meanwhile (a deadline, a cancel), nobody waits for the tools."""
        loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(self.tools.arun(calls))

        def stop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs there any more
                loop.call_soon_threadsafe(running.cancel)

        s.on_done(stop)
        try:
            return await running
        except asyncio.CancelledError:
            if (failure := s._interpreter.failure) is not None:
                raise failure.again() from failure.cause
            raise

    def _run(self, s: ProgramState, task: str, result: AgentResult) -> _Loop:
        """Turns until there is an answer. What is yielded is done by the driver, which may wait or await."""
        first_usage = len(s._interpreter.gathered.usages)
        self.turns.begin(s, task)
        spent = 0
        while True:
            number = len(result.steps) + 1
            limit = self._limit(number, spent)
            must_call = sum(bool(step.calls) for step in result.steps) < self.least_calls
            turn, tokens = yield from self._turn(s, number, last=limit is not None, must_call=must_call)
            spent += tokens
            if turn.answered:
                result.ended, result._answer = limit or "answered", turn.answer
                break
            if limit is not None:
                raise NotOfType(
                    f"At its limit of {limit} the agent gave no answer: {turn.problem}", hint="Raise answer_tokens."
                )
            yield from self._act(s, turn, result)
        result.usage = ProgramUsage.of(s._interpreter.gathered.usages[first_usage:])

    def _limit(self, number: int, spent: int) -> Ended | None:
        """Which limit leaves room for nothing but the answer."""
        if number > self.steps:
            return "steps"
        if self.tokens is not None and spent + self.turns.most_tokens > self.tokens:
            return "tokens"
        return None

    def _turn(
        self, s: ProgramState, number: int, *, last: bool, must_call: bool
    ) -> Generator[_Read, Any, tuple[Turn, int]]:
        """What the model does next, and how many tokens it wrote."""
        writing = self.turns.write(s, f"{self.name}.{number}", last=last, must_call=must_call)
        spent, value = 0, None
        while True:
            try:
                name = writing.send(value)
            except StopIteration as stop:
                turn: Turn = stop.value
                return turn, spent
            value, tokens = yield _Read(name)
            spent += tokens

    def _act(self, s: ProgramState, turn: Turn, result: AgentResult) -> _Loop:
        """Run the turn's calls, and tell the model what came of them."""
        results: list[ToolResult] = []
        if turn.calls:
            wait = self.tools.expected_seconds(turn.calls)
            longest = self.tools.longest_seconds(turn.calls)
            s.hint(pin_seconds=longest + PIN_SLACK, tool_wait_seconds=longest if wait is None else wait)
            results = yield _Run(turn.calls)
            s._interpreter.gathered.recording.ran(results, time.monotonic())
            s.hint(pin_seconds=0.0)
        step = AgentStep(turn.thought, tuple(turn.calls), tuple(results))
        result.steps.append(step)
        if self.on_step is not None:
            self.on_step(step)
        told = [_shortened(each.text, self.result_characters) for each in results]
        self.turns.tell(s, turn, told)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} more characters)"
