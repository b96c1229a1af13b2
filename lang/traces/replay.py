"""A backend that answers as a trace says: the same program runs again, without a model, to the same outputs.

Branches are told apart by their place in the program's forks, so the order in which they run doesn't matter. A program
that appends other text than the trace has, or makes other calls, is refused where it differs. Used by programs
(`backend=Replay(trace)`) and by agents' `replay`, which take the tools' results from the trace, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from palmette.lang.backends.base import BackendBranch, Result, ToolChat
from palmette.lang.loop import language_loop
from palmette.lang.tools.tool import ToolCall, ToolResult
from palmette.lang.traces.trace import Kind, Trace, TracedCall
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.branches import ChoiceScores, Chunk, ExtendStep, GenerateStep, Part, Step, Text
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.tool_chats import AskTurn, Said, ToldTurn


class Replay:
    """Runs a program as `trace` recorded it. Each branch that a program opens begins at the trace's beginning."""

    name = "replay"

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return language_loop()

    async def open(self, *, namespace: str = "") -> BackendBranch:
        return _Branch(self.trace, "")

    def open_tool_chat(self, *, namespace: str = "", state: str = "") -> ToolChat:
        """The conversation with tools that the state at `state` had."""
        return _Chat(self.trace, state)

    async def flush_cache(self) -> int:
        return 0

    async def close(self) -> None:
        """Nothing to release."""


class _Branch:
    def __init__(self, trace: Trace, path: str) -> None:
        self._trace = trace
        self._path = path
        self._calls = iter([call for call in trace if call.state == path and call.kind != "tool" and not call.asked])
        self._forks = 0
        self._next: TracedCall | None = None  # the verb that comes next
        self._text = ""  # what is appended before it
        self._begins: list[int] = []  # where the program's own texts begin in it
        self._advance()

    async def run(self, steps: Sequence[Step], *, last: bool = False) -> AsyncGenerator[tuple[int, Result], None]:
        for number, step in enumerate(steps):
            await asyncio.sleep(0)
            match step:
                case ExtendStep(parts=parts):
                    yield number, Chunk(appended=self._taken(parts))
                case GenerateStep(parts=parts):
                    yield number, self._generated(parts)
                case _:
                    yield number, self._scored(step.parts, step.choices)

    def _generated(self, parts: Sequence[Part]) -> Chunk:
        call, appended = self._verb("gen", parts)
        if call.finish is None:
            raise _differs("the call was not finished there" + (f": {call.error}" if call.error else "."))
        return Chunk(
            text=call.text,
            reasoning=call.reasoning,
            answer=call.answer,
            tokens=call.tokens,
            appended=appended,
            finish=call.finish,
            usage=call.usage,
        )

    def _scored(self, parts: Sequence[Part], choices: Sequence[str]) -> ChoiceScores:
        call, _ = self._verb("select", parts)
        if call.scores is None or len(call.scores.tokens) != len(choices):
            raise _differs(f"select had other choices than {list(choices)!r}.")
        return call.scores

    async def fork(self, parts: Sequence[Part], count: int) -> list[BackendBranch]:
        self._verb("fork", parts)
        self._forks += 1
        return [_Branch(self._trace, f"{self._path}{self._forks}.{index}/") for index in range(count)]

    async def hint(self, hint: BranchHint) -> None:
        """There is no cache."""

    async def close(self) -> None:
        """Nothing to release."""

    def drop(self) -> bool:
        return True

    def _verb(self, kind: Kind, parts: Sequence[Part]) -> tuple[TracedCall, str]:
        """The trace's next call, which must be of `kind`, and the text that comes before its output."""
        self._check(parts)
        call, text = self._next, self._text
        if call is None or call.kind != kind:
            there = "the end" if call is None else f"{call.kind} {call.name!r} ({call.where})"
            raise _differs(f"the program makes a {kind} call where the trace has {there}.")
        self._advance()
        return call, text

    def _taken(self, parts: Sequence[Part]) -> str:
        """The text that `parts` add, which may be less than the trace's next call took with it."""
        at = self._check(parts)
        if parts and not isinstance(parts[-1], Text):  # a turn's text is the template's, up to the program's own next
            at = next((begin for begin in self._begins if begin >= at), len(self._text))
        taken, self._text = self._text[:at], self._text[at:]
        self._begins = [begin - at for begin in self._begins if begin >= at]
        return taken

    def _check(self, parts: Sequence[Part]) -> int:
        """Where the last text of `parts` ends in what the trace appends."""
        at = 0
        for part in parts:
            if isinstance(part, Text):
                found = self._text.find(part.text, at)
                if found < 0 and self._next is None:  # behind the last call, where a backend needn't be told of it
                    found, self._text = len(self._text), self._text + part.text
                if found < 0:
                    raise _differs(f"the program appends {part.text!r:.200}, the trace {self._text[at:]!r:.200}.")
                at = found + len(part.text)
        return at

    def _advance(self) -> None:
        self._next, self._text, self._begins = None, "", []
        for call in self._calls:
            self._begins += [len(self._text) + begin for begin in call.texts]
            self._text += call.appended
            if call.kind != "text":
                self._next = call
                return


class _Chat:
    """A conversation with tools as the trace has it."""

    def __init__(self, trace: Trace, path: str) -> None:
        self._turns = iter([call for call in trace if call.state == path and call.asked])

    async def ask(self, turn: AskTurn) -> ToldTurn:
        call = next(self._turns, None)
        if call is None:
            raise _differs("it asks for another turn of the conversation, where the trace ends.")
        new = turn.messages[len(turn.messages) - len(call.asked) :]
        for said, there in zip(new, call.asked, strict=False):
            if said != there:
                raise _differs(f"the conversation has {_brief(said)}, the trace {_brief(there)}.")
        if call.told is None:
            raise _differs("the turn was not answered there" + (f": {call.error}" if call.error else "."))
        return call.told

    async def hint(self, hint: BranchHint) -> None:
        """There is no cache."""

    async def close(self) -> None:
        """Nothing to release."""


def _brief(said: Said) -> str:
    return f"{said.role} {said.content!r:.200}"


def _differs(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"The program differs from its trace: {what}",
        hint="Replay the program, with the arguments, that the trace was recorded of.",
    )


class ReplayedTools:
    """Stands in for an agent's tools: results come from the trace, in its order; nothing runs."""

    def __init__(self, trace: Trace) -> None:
        self._results: Iterator[TracedCall] = iter([call for call in trace if call.kind == "tool"])

    def expected_seconds(self, calls: Sequence[ToolCall]) -> float:
        return 0.0

    def longest_seconds(self, calls: Sequence[ToolCall]) -> float:
        return 0.0

    async def arun(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        return [self._result(call) for call in calls]

    def _result(self, call: ToolCall) -> ToolResult:
        there = next(self._results, None)
        if there is None or (there.name, there.arguments) != (call.name, call.arguments):
            known = "the end" if there is None else str(ToolCall(there.name, there.arguments))
            raise InvalidRequest(f"The agent differs from its trace: it calls {call}, the trace has {known}.")
        value: Any = there.value
        return ToolResult(call, there.text, value, failed=there.failed, seconds=there.seconds)
