"""What one state's nodes do: messages to its branch, and where their results go. What stands in a row and needs no
Python in between goes to the backend in one message.

Lives on the backend's loop; the interpreter, which says what is next, is its only caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from palmette.lang.backends.base import Backend, Result
from palmette.lang.connection import Connection
from palmette.lang.conversation import Conversation
from palmette.lang.errors import Location, ProgramError
from palmette.lang.executor import called, failure_of
from palmette.lang.gathered import Gathered
from palmette.lang.instructions import (
    Asking,
    Barrier,
    Generation,
    Hinting,
    Node,
    ScopeBegin,
    ScopeEnd,
    Selection,
)
from palmette.lang.nodes import RoleBegin, RoleEnd, TextNode
from palmette.lang.outputs import OutputRecord, call_ids, usage_report
from palmette.lang.planning import Planned, plan
from palmette.lang.trace import Open
from palmette.runtime.errors import TimedOut
from palmette.runtime.messages.branches import ChoiceScores, Chunk, Part, Tokens
from palmette.runtime.messages.tokens import pack


class Place(Protocol):
    """What the execution tells of, and asks, whoever keeps the queue: `at` is the node that runs."""

    at: tuple[Location, Node]
    failure: ProgramError | None

    def ends(self) -> bool:
        """Whether nothing but the end is left."""
        ...


class ForkedBranch(NamedTuple):
    """A branch for a forked state, and where that stands in its program's forks (lang/trace.py)."""

    connection: Connection
    path: str


class Execution:
    """Of one state."""

    def __init__(self, backend: Backend, namespace: str, gathered: Gathered, place: Place) -> None:
        self.connection = Connection(backend, namespace)
        self._conversation = Conversation(backend, namespace)
        self._gathered = gathered
        self._place = place
        self._pending: list[tuple[Part, str | None]] = []  # parts not sent yet; their text, where known here

    async def run(self, batch: Sequence[tuple[Node, Location]]) -> None:
        """Text, turns, generations and selections, in one message."""
        planned, rest = plan(batch, self._parts())
        if planned:
            place = self._place
            last = not rest and place.ends()
            current = -1
            record: OutputRecord | None = None
            call: Open | None = None
            start = time.monotonic()
            place.at = planned[0].at
            async with contextlib.aclosing(self.connection.run([each.step for each in planned], last=last)) as results:
                async for number, result in results:
                    each = planned[number]
                    if number != current:
                        current, record = number, each.record()
                        call = self._begin_call(each, start)
                        self._begin_step(each, result)
                    assert call is not None
                    call.add(result)
                    if self._take(each, result, record):
                        call.close()
                        start = call.end
                        place.at = planned[min(number + 1, len(planned) - 1)].at
        for node, part in rest:
            self._passive(node, part)

    async def execute(self, node: Node) -> None:
        """What is a message of its own, or none."""
        match node:
            case Barrier():
                await self._reach(node)
            case Generation() if node.node.count > 1:
                await self._generate_several(node)
            case Generation() | Selection():  # with a timeout, or by a method that only the program knows
                async with _within(node.timeout):
                    await self.run([(node, self._place.at[0])])
            case Asking():
                await self._ask(node)
            case Hinting(hint):
                await self.connection.hint(hint)
                await self._conversation.hint(hint)
            case ScopeBegin(variable):
                await self._flush()
                self._gathered.scope_begins(variable)
            case ScopeEnd(variable):
                await self._flush()
                self._gathered.scope_ends(variable)
            case _:
                raise AssertionError(f"{node} is the interpreter's own")

    async def fork(self, count: int) -> list[ForkedBranch]:
        """Branches for `count` states that start from here."""
        if any(text is None for _, text in self._pending):
            await self._flush()
        start, paths = time.monotonic(), self._gathered.recording.fork()
        connections = await self.connection.fork(self._parts(), count)
        self._note_fork(start)
        return [ForkedBranch(each, f"{paths}{index}/") for index, each in enumerate(connections)]

    def adopt(self, fork: ForkedBranch, parent: Execution) -> None:
        """Stand where `parent` does."""
        self.connection.adopt(fork.connection)
        self._gathered.recording.path = fork.path
        self._gathered.begin_behind(parent._gathered)

    def concatenate(self, forks: Sequence[Execution]) -> None:
        """What each has appended since it began, which is over, is appended here."""
        for fork in forks:
            parts = fork.connection.history[fork.connection.forked_at :]
            if not parts:
                continue
            self._pending += [(part, "") for part in parts[:-1]]
            self._pending.append((parts[-1], fork._gathered.text_since_fork))
            self._gathered.append_turns(fork._gathered)

    async def end(self) -> None:
        """Nothing will be computed any more: only template text that is not known here has to be asked for."""
        known = self._known_text()
        if known is None:
            await self._flush()
        else:
            self.connection.note(self._parts())
            self._commit(known)

    async def close(self) -> None:
        """Release the branch."""
        await self.connection.close()
        await self._conversation.close()

    # Calls

    def _begin_call(self, planned: Planned, start: float) -> Open:
        recording, node = self._gathered.recording, planned.node
        if node is None:
            return recording.begin("text", None, planned.at[0], start, planned.step.parts)
        kind, name = called(node)
        return recording.begin(kind or "text", name, planned.at[0], start, planned.step.parts)

    def _begin_step(self, planned: Planned, result: Result) -> None:
        for node, part in planned.passive:
            self._passive(node, part)
        self._commit(result.appended)

    def _take(self, planned: Planned, result: Result, record: OutputRecord | None) -> bool:
        """What a step gave, into the transcript and the variables; whether the step ended."""
        node = planned.node
        if isinstance(node, Selection):
            assert isinstance(result, ChoiceScores)
            self._selected(node, result)
            return True
        if not isinstance(node, Generation):
            return True
        assert isinstance(result, Chunk), "a generation gives chunks"
        assert record is not None
        self._gathered.wrote(record, result)
        if record.usage is None:
            return False
        self._gathered.usages.append(record.usage)
        node.fill([record])
        return True

    def _selected(self, selection: Selection, scores: ChoiceScores) -> None:
        index, chosen = self._gathered.selected(selection, scores)
        if scores.chosen is None:  # decided here, so the branch doesn't have it yet
            self._pending.append((Tokens(pack(scores.tokens[index])), chosen))
        else:
            self._gathered.grow(chosen)

    async def _generate_several(self, generation: Generation) -> None:
        """n outputs side by side from one prompt. The first one goes on; the others' branches end."""
        forks = await self.fork(generation.node.count - 1)
        connections = [self.connection, *(fork.connection for fork in forks)]
        paths = [None, *(fork.path for fork in forks)]
        records = [generation.record(index) for index in range(generation.node.count)]
        tasks = [
            asyncio.ensure_future(self._one_of_several(connection, generation, index, records[index], path))
            for index, (connection, path) in enumerate(zip(connections, paths, strict=True))
        ]
        try:
            async with _within(generation.timeout):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in connections[1:]:
                await connection.close()
        generation.fill(records)

    async def _one_of_several(
        self, connection: Connection, generation: Generation, index: int, record: OutputRecord, path: str | None
    ) -> None:
        gathered, where = self._gathered, self._place.at[0]
        call = gathered.recording.begin("gen", generation.node.name, where, time.monotonic(), state=path)
        async with contextlib.aclosing(connection.run([generation.step(index=index)])) as results:
            async for _, chunk in results:
                assert isinstance(chunk, Chunk), "a generation gives chunks"
                call.add(chunk)
                if index == 0:
                    gathered.wrote(record, chunk)
                else:
                    record.add(chunk)
        call.close()
        assert record.usage is not None
        gathered.usages.append(record.usage)

    async def _ask(self, asking: Asking) -> None:
        """The next turn of a conversation with tools."""
        turn, recording = asking.turn, self._gathered.recording
        new = turn.messages[len(turn.messages) - asking.new :]
        call = recording.ask(asking.variable.name, self._place.at[0], new)
        async with _within(turn.timeout):
            told = await self._conversation.ask(turn, recording.path)
        call.answered(told)
        self._gathered.usages.append(told.usage)
        asking.variable.fill(told, {"id": f"turn-{next(call_ids)}", **usage_report(told.usage)})

    async def _reach(self, barrier: Barrier) -> None:
        if barrier.text:
            try:
                await self._flush()
            except BaseException as cause:
                barrier.reached.set_exception(self._place.failure or failure_of(cause, *self._place.at))
                raise
        barrier.reached.set_result(None)

    # Text that the branch doesn't hold yet

    async def _flush(self) -> None:
        """Send what is pending, so that the transcript's text is up to date."""
        if self._pending:
            start = time.monotonic()
            appended = await self.connection.extend(self._parts())
            self._gathered.recording.note("text", self._place.at[0], self._parts(), appended, start)
            self._commit(appended)

    def _note_fork(self, start: float) -> None:
        known = self._known_text() or ""
        self._gathered.recording.note("fork", self._place.at[0], self._parts(), known, start)
        self._commit(known)

    def _passive(self, node: Node, part: Part) -> None:
        """Take a node that computes nothing: its part waits for the next verb."""
        self._pending.append((part, node.text if isinstance(node, TextNode) else None))
        transcript = self._gathered.transcript
        match node:
            case TextNode(text):
                transcript.write(text)
            case RoleBegin(role):
                transcript.begin(role)
            case RoleEnd():
                transcript.end()

    def _parts(self) -> list[Part]:
        return [part for part, _ in self._pending]

    def _known_text(self) -> str | None:
        texts = [text for _, text in self._pending]
        return None if None in texts else "".join(text or "" for text in texts)

    def _commit(self, appended: str) -> None:
        """The pending parts are in the branch now, and added `appended`."""
        self._pending.clear()
        self._gathered.grow(appended)


@contextlib.asynccontextmanager
async def _within(seconds: float | None) -> AsyncIterator[None]:
    """Raises TimedOut once so many seconds have passed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"{seconds:g} s have passed.", hint="Raise timeout, or ask for less (max_tokens, n).") from None
