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
from palmette.lang.errors import Location, ProgramError
from palmette.lang.interpreter.connection import Connection
from palmette.lang.interpreter.conversation import Conversation
from palmette.lang.interpreter.executor import called, failure_of
from palmette.lang.interpreter.gathered import Gathered
from palmette.lang.interpreter.instructions import (
    Asking,
    Barrier,
    Generation,
    Hinting,
    Node,
    ScopeBegin,
    ScopeEnd,
    Selection,
)
from palmette.lang.interpreter.outputs import OutputRecord, call_ids, usage_report
from palmette.lang.interpreter.planning import Planned, part_of, plan
from palmette.lang.nodes import TextNode
from palmette.lang.traces.trace import Open
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
    """A branch for a forked state, and where that stands in its program's forks (lang/traces/trace.py)."""

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
            self._place.at = planned[0].at
            message = _Message(self, self._gathered, self._place, planned)
            last = not rest and self._place.ends()
            await self.connection.run([each.step for each in planned], message.take, last=last)
        for node, part in rest:
            self.passive(node, part)

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
            self._note_end(known)

    def _note_end(self, text: str) -> None:
        self.connection.note(self._parts())
        self.commit(text)

    def ends_with(self, nodes: Sequence[Node]) -> bool:
        """`end` behind `nodes`, where they are texts and nothing has to be asked for. False: nothing is done."""
        if self._known_text() is None or not all(isinstance(node, TextNode) for node in nodes):
            return False
        for node in nodes:
            self.passive(node, part_of(node))
        self._note_end(self._known_text() or "")
        return True

    def drop(self) -> bool:
        """Release the branch from any thread, where nothing runs; False where that has to be awaited."""
        return self.connection.drop() and not self._conversation.is_open

    async def close(self) -> None:
        """Release the branch."""
        await self.connection.close()
        await self._conversation.close()

    # Calls

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

        def take(_: int, chunk: Result) -> None:
            assert isinstance(chunk, Chunk), "a generation gives chunks"
            call.add(chunk)
            if index == 0:
                gathered.wrote(record, chunk)
            else:
                record.add(chunk)

        await connection.run([generation.step(index=index)], take)
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
            self.commit(appended)

    def _note_fork(self, start: float) -> None:
        known = self._known_text() or ""
        self._gathered.recording.note("fork", self._place.at[0], self._parts(), known, start)
        self.commit(known)

    def passive(self, node: Node, part: Part) -> None:
        """Take a node that computes nothing: its part waits for the next verb."""
        self._pending.append((part, node.text if isinstance(node, TextNode) else None))
        self._gathered.transcript.take(node)

    def chosen_here(self, tokens: bytes, text: str) -> None:
        """A choice that was decided here: the branch doesn't have it yet."""
        self._pending.append((Tokens(tokens), text))

    def _parts(self) -> list[Part]:
        return [part for part, _ in self._pending]

    def _known_text(self) -> str | None:
        texts = [text for _, text in self._pending]
        return None if None in texts else "".join(text or "" for text in texts)

    def commit(self, appended: str) -> None:
        """The pending parts are in the branch now, and added `appended`."""
        self._pending.clear()
        self._gathered.grow(appended)


class _Message:
    """Steps that were sent together: what comes of each goes to its node."""

    __slots__ = ("_at", "_call", "_execution", "_gathered", "_place", "_planned", "_record", "_start")

    def __init__(self, execution: Execution, gathered: Gathered, place: Place, planned: Sequence[Planned]) -> None:
        self._execution = execution
        self._gathered = gathered
        self._place = place
        self._planned = planned
        self._at = -1  # the step that gives something
        self._start = time.monotonic()  # of its call
        self._call: Open | None = None
        self._record: OutputRecord | None = None

    def take(self, number: int, result: Result) -> None:
        """Something of step `number`."""
        planned = self._planned[number]
        if number != self._at:
            self._at, self._record = number, planned.record()
            self._call = self._begun(planned)
            for node, part in planned.passive:
                self._execution.passive(node, part)
            self._execution.commit(result.appended)
        assert self._call is not None
        self._call.add(result)
        if self._taken(planned.node, result):
            self._call.close()
            self._start = self._call.end
            if number + 1 < len(self._planned):
                self._place.at = self._planned[number + 1].at

    def _begun(self, planned: Planned) -> Open:
        recording, node = self._gathered.recording, planned.node
        kind, name = ("text", None) if node is None else called(node)
        return recording.begin(kind or "text", name, planned.at[0], self._start, planned.step.parts)

    def _taken(self, node: Generation | Selection | None, result: Result) -> bool:
        """Into the transcript and the variables; whether the step ended."""
        if isinstance(node, Generation):
            record = self._record
            assert isinstance(result, Chunk), "a generation gives chunks"
            assert record is not None
            self._gathered.wrote(record, result)
            if record.usage is None:
                return False
            self._gathered.usages.append(record.usage)
            node.fill([record])
        elif node is not None:
            assert isinstance(result, ChoiceScores), "a selection gives scores"
            index, chosen = self._gathered.selected(node, result)
            if result.chosen is None:
                self._execution.chosen_here(pack(result.tokens[index]), chosen)
            else:
                self._gathered.grow(chosen)
        return True


@contextlib.asynccontextmanager
async def _within(seconds: float | None) -> AsyncIterator[None]:
    """Raises TimedOut once so many seconds have passed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"{seconds:g} s have passed.", hint="Raise timeout, or ask for less (max_tokens, n).") from None
