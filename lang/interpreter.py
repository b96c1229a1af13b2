"""Executes one state's nodes, in order, on the backend's event loop.

Programs write nodes from their own thread (`submit`, cheap: text waits for the next verb); one task at a time drains
them and ends when nothing is left, so an idle state costs neither a thread nor a task. What stands in the queue and
needs no Python in between goes to the backend in one message. It must not know of engines, tokens' meaning or
templates; the states of lang/state.py are its only callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from palmette.lang.arrival import Arrival
from palmette.lang.backends.base import Backend, Result
from palmette.lang.choices import report
from palmette.lang.connection import Connection
from palmette.lang.conversation import Conversation
from palmette.lang.errors import Location, ProgramError
from palmette.lang.instructions import (
    PASSIVE,
    Asking,
    Barrier,
    Concatenate,
    End,
    Fork,
    Generation,
    Hinting,
    Node,
    ScopeBegin,
    ScopeEnd,
    Selection,
)
from palmette.lang.nodes import RoleBegin, RoleEnd, TextNode
from palmette.lang.outputs import OutputRecord, call_ids, usage_report
from palmette.lang.planning import Planned, plan, travels
from palmette.lang.streams import TextStream
from palmette.lang.trace import Kind, Open, Recording
from palmette.lang.transcript import Transcript
from palmette.lang.variables import Scope, Variable
from palmette.runtime.errors import Aborted, EngineDied, TimedOut
from palmette.runtime.messages.branches import ChoiceScores, Chunk, Part, Tokens
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.tokens import pack


class Interpreter:
    """One state's execution. `submit`, `abandon` and `fail_from_outside` may be called from any thread."""

    def __init__(self, backend: Backend, scope: Scope, *, namespace: str = "", waits_for_fork: bool = False) -> None:
        self.backend = backend
        self.loop = backend.loop
        self.scope = scope
        self.stream = TextStream()
        self.usages: list[Usage] = []
        self.done: Arrival[None] = Arrival()
        self.failure: ProgramError | None = None
        self.transcript = Transcript()
        self.recording = Recording()
        self.at: tuple[Location, Node] = (Location("?", 0, "?"), End())  # the node that runs
        self._connection = Connection(backend, namespace)
        self._conversation = Conversation(backend, namespace)
        self._pending: list[tuple[Part, str | None]] = []  # parts not sent yet; their text, where known here
        self._fork_piece = 0
        self._fork_turn = self._fork_content = 0
        self._scope_starts: dict[Variable, int] = {}
        self._queue: deque[tuple[Node, Location]] = deque()
        self._lock = threading.Lock()
        self._running = False
        self._waits_for_fork = waits_for_fork
        self._task: asyncio.Task[None] | None = None

    def on_begin(self, callback: Callable[[Sequence[Part]], None]) -> None:
        """Call back with what the first verb appends."""
        self._connection.on_first = callback

    # Called from the program's thread

    def submit(self, nodes: Sequence[Node], where: Location) -> None:
        """Append `nodes`. Raises the state's failure where it has failed."""
        wake = not all(isinstance(node, PASSIVE) for node in nodes)
        with self._lock:
            if self.failure is not None:
                raise self.failure.again() from self.failure.cause
            self._queue.extend((node, where) for node in nodes)
            start = wake and not self._running and not self._waits_for_fork
            self._running = self._running or start
        if start and not self._call_soon(self._start):
            self._engine_is_gone(where, str(nodes[-1]))

    def fail(self, error: ProgramError) -> None:
        """Fail the state from any thread: its readers get `error` now, what runs is aborted."""
        if self._take_failure(error) and not self._call_soon(self._stop):
            self.done.set_exception(error)

    def _call_soon(self, callback: Callable[[], None]) -> bool:
        """False where the loop is closed: its engine was closed."""
        try:
            if asyncio._get_running_loop() is self.loop:
                self.loop.call_soon(callback)  # nobody has to be woken
            else:
                self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return False
        return True

    def _engine_is_gone(self, where: Location, node: str) -> None:
        cause = EngineDied("The engine of this program was closed.", hint="Run it on another engine.")
        error = ProgramError(cause, where, node)
        if self._take_failure(error):
            self.done.set_exception(error)
        raise error

    # On the loop

    def _start(self) -> None:
        self._task = self.loop.create_task(self._drain())

    def _stop(self) -> None:
        running = self._task
        if running is not None:
            running.cancel()
        self._task = self.loop.create_task(self._stopped(running))

    async def _stopped(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        await self._release()

    async def _drain(self) -> None:
        while batch := self._next():
            self.at = (batch[0][1], batch[0][0])
            try:
                if travels(batch[0][0]):
                    await self._run(batch)
                else:
                    await self._execute(batch[0][0])
            except Exception as cause:
                self._take_failure(_failed(cause, *self.at))
            except asyncio.CancelledError as cause:
                if self._take_failure(_failed(cause, *self.at)):
                    await self._release()  # cancelled by another than `_stop`, which releases itself
                raise
        if self.failure is not None:
            await self._release()

    def _next(self) -> list[tuple[Node, Location]]:
        """The next node, with those behind it that can go in the same message."""
        with self._lock:
            if not self._queue:
                self._running = False
                return []
            batch = [self._queue.popleft()]
            if travels(batch[0][0]):
                while self._queue and travels(self._queue[0][0]):
                    batch.append(self._queue.popleft())
            return batch

    def _ends(self) -> bool:
        """Whether nothing but the end is left."""
        with self._lock:
            return len(self._queue) == 1 and isinstance(self._queue[0][0], End)

    def _take_failure(self, error: ProgramError) -> bool:
        """Record the first failure and tell everybody who waits; False where the state is over already."""
        with self._lock:
            if self.failure is not None or self.done.done():
                return False
            self.failure = error
            where, node = self.at
            self.recording.fail(str(error), *_called(node), where)
            dropped = [node for node, _ in self._queue]
            self._queue.clear()
        for node in dropped:
            if isinstance(node, Barrier):
                node.reached.set_exception(error)
            elif isinstance(node, Fork):
                for child in node.children:
                    child.fail(error)
        self.scope.fail(error)
        self.stream.end(error)
        return True

    async def _release(self) -> None:
        """Close the branch, and say that the state is over."""
        try:
            await self._connection.close()
            await self._conversation.close()
        finally:
            self.stream.end(self.failure)
            if not self.done.done():
                if self.failure is None:
                    self.done.set_result(None)
                else:
                    self.done.set_exception(self.failure)

    async def _execute(self, node: Node) -> None:
        """What is a message of its own, or none."""
        match node:
            case Fork(children):
                await self._fork(children)
            case Concatenate(children):
                await self._concatenate(children)
            case Barrier(reached, text):
                await self._reach(reached, text)
            case Hinting(hint):
                await self._connection.hint(hint)
                await self._conversation.hint(hint)
            case Asking():
                await self._ask(node)
            case ScopeBegin(variable):
                await self._flush()
                self._scope_starts[variable] = len(self.transcript.pieces)
            case ScopeEnd(variable):
                await self._flush()
                variable.fill("".join(self.transcript.pieces[self._scope_starts.pop(variable) :]))
            case End():
                await self._end()
            case Generation() if node.node.count > 1:
                await self._generate_several(node)
            case Generation() | Selection():  # with a timeout, or by a method that only the program knows
                async with _within(node.timeout):
                    await self._run([(node, self.at[0])])

    # Verbs

    async def _run(self, batch: list[tuple[Node, Location]]) -> None:
        """Text, turns, generations and selections, in one message."""
        planned, rest = plan(batch, self._parts())
        if planned:
            last = not rest and self._ends()
            current = -1
            record: OutputRecord | None = None
            call: Open | None = None
            start = time.monotonic()
            self.at = planned[0].at
            async with contextlib.aclosing(self._connection.run([each.step for each in planned], last=last)) as results:
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
                        self.at = planned[min(number + 1, len(planned) - 1)].at
        for node, part in rest:
            self._passive(node, part)

    def _begin_call(self, planned: Planned, start: float) -> Open:
        node = planned.node
        if node is None:
            return self.recording.begin("text", None, planned.at[0], start, planned.step.parts)
        kind, name = _called(node)
        return self.recording.begin(kind or "text", name, planned.at[0], start, planned.step.parts)

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
        self._wrote(record, result)
        if record.usage is None:
            return False
        self.usages.append(record.usage)
        node.fill([record])
        return True

    def _wrote(self, record: OutputRecord, chunk: Chunk) -> None:
        if chunk.text:
            self._grow(chunk.text)
        self.transcript.write(record.add(chunk), chunk.reasoning)

    def _selected(self, selection: Selection, scores: ChoiceScores) -> None:
        method = selection.node.method
        index, details = method.decide(scores)
        if scores.chosen is not None:
            index = scores.chosen
        chosen = selection.node.choices[index]
        if scores.chosen is None:
            self._pending.append((Tokens(pack(scores.tokens[index])), chosen))
        else:
            self._grow(chosen)
        self.transcript.write(chosen)
        self.usages.append(scores.usage)
        if selection.variable is not None:
            meta = {
                "id": f"select-{next(call_ids)}",
                **usage_report(scores.usage),
                **report(scores),
                **details,
            }
            selection.variable.stream.push(chosen, meta)
            selection.variable.fill(chosen, meta)

    async def _generate_several(self, generation: Generation) -> None:
        """n outputs side by side from one prompt. The first one goes on; the others' branches end."""
        if any(text is None for _, text in self._pending):
            await self._flush()
        start, paths = time.monotonic(), self.recording.fork()
        others = await self._connection.fork(self._parts(), generation.node.count - 1)
        self.recording.note("fork", self.at[0], self._parts(), self._known_text() or "", start)
        self._commit(self._known_text() or "")
        records = [generation.record(index) for index in range(generation.node.count)]
        tasks = [
            asyncio.ensure_future(self._one_of_several(connection, generation, index, records[index], paths))
            for index, connection in enumerate((self._connection, *others))
        ]
        try:
            async with _within(generation.timeout):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in others:
                await connection.close()
        generation.fill(records)

    async def _one_of_several(
        self, connection: Connection, generation: Generation, index: int, record: OutputRecord, forks: str
    ) -> None:
        state = f"{forks}{index - 1}/" if index else None
        call = self.recording.begin("gen", generation.node.name, self.at[0], time.monotonic(), state=state)
        async with contextlib.aclosing(connection.run([generation.step(index=index)])) as results:
            async for _, chunk in results:
                assert isinstance(chunk, Chunk), "a generation gives chunks"
                call.add(chunk)
                if index == 0:
                    self._wrote(record, chunk)
                else:
                    record.add(chunk)
        call.close()
        assert record.usage is not None
        self.usages.append(record.usage)

    async def _ask(self, asking: Asking) -> None:
        """The next turn of a conversation with tools."""
        turn = asking.turn
        call = self.recording.ask(asking.variable.name, self.at[0], turn.messages[len(turn.messages) - asking.new :])
        async with _within(turn.timeout):
            told = await self._conversation.ask(turn, self.recording.path)
        call.answered(told)
        self.usages.append(told.usage)
        asking.variable.fill(told, {"id": f"turn-{next(call_ids)}", **usage_report(told.usage)})

    async def _fork(self, children: tuple[Interpreter, ...]) -> None:
        try:
            if any(text is None for _, text in self._pending):
                await self._flush()
            start, paths = time.monotonic(), self.recording.fork()
            connections = await self._connection.fork(self._parts(), len(children))
            self.recording.note("fork", self.at[0], self._parts(), self._known_text() or "", start)
            self._commit(self._known_text() or "")
        except BaseException as cause:
            error = self.failure or _failed(cause, *self.at)
            for child in children:
                child.fail(error)
            raise
        for index, (child, connection) in enumerate(zip(children, connections, strict=True)):
            child.recording.path = f"{paths}{index}/"
            child._begin(connection, self.transcript)

    def _begin(self, connection: Connection, transcript: Transcript) -> None:
        """Start a forked state where its parent stands."""
        self._connection.adopt(connection)
        self.transcript, self._fork_piece = transcript.copy(), len(transcript.pieces)
        self._fork_turn, self._fork_content = len(transcript.messages), len(transcript.content)
        with self._lock:
            self._waits_for_fork = False
            failed = self.failure is not None
            start = not failed and any(not isinstance(node, PASSIVE) for node, _ in self._queue)
            self._running = self._running or start
        if start:
            self._start()
        elif failed:
            self._task = self.loop.create_task(self._release())

    async def _concatenate(self, children: tuple[Interpreter, ...]) -> None:
        for child in children:
            await child.done
        for child in children:
            text = "".join(child.transcript.pieces[child._fork_piece :])
            parts = child._connection.history[child._connection.forked_at :]
            if not parts:
                continue
            self._pending += [(part, "") for part in parts[:-1]]
            self._pending.append((parts[-1], text))
            self.transcript.append(child.transcript, since_turn=child._fork_turn, since_content=child._fork_content)

    async def _reach(self, reached: Arrival[None], text: bool) -> None:
        try:
            if text:
                await self._flush()
        except BaseException as cause:
            reached.set_exception(self.failure or _failed(cause, *self.at))
            raise
        reached.set_result(None)

    async def _flush(self) -> None:
        """Send what is pending, so that the transcript's text is up to date."""
        if self._pending:
            start = time.monotonic()
            appended = await self._connection.extend(self._parts())
            self.recording.note("text", self.at[0], self._parts(), appended, start)
            self._commit(appended)

    async def _end(self) -> None:
        """Nothing will be computed any more: only template text that is not known here has to be asked for."""
        known = self._known_text()
        if known is None:
            await self._flush()
        else:
            self._connection.note(self._parts())
            self._commit(known)
        await self._release()

    def _passive(self, node: Node, part: Part) -> None:
        """Take a node that computes nothing: its part waits for the next verb."""
        self._pending.append((part, node.text if isinstance(node, TextNode) else None))
        match node:
            case TextNode(text):
                self.transcript.write(text)
            case RoleBegin(role):
                self.transcript.begin(role)
            case RoleEnd():
                self.transcript.end()

    def _parts(self) -> list[Part]:
        return [part for part, _ in self._pending]

    def _known_text(self) -> str | None:
        texts = [text for _, text in self._pending]
        return None if None in texts else "".join(text or "" for text in texts)

    def _commit(self, appended: str) -> None:
        """The pending parts are in the branch now, and added `appended`."""
        self._pending.clear()
        if appended:
            self._grow(appended)

    def _grow(self, text: str) -> None:
        self.transcript.pieces.append(text)
        self.stream.push(text)


@contextlib.asynccontextmanager
async def _within(seconds: float | None) -> AsyncIterator[None]:
    """Raises TimedOut once so many seconds have passed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"{seconds:g} s have passed.", hint="Raise timeout, or ask for less (max_tokens, n).") from None


def _called(node: Node) -> tuple[Kind | None, str | None]:
    """What a trace calls a node that computes something, and its name."""
    match node:
        case Generation():
            return "gen", node.node.name
        case Selection():
            return "select", node.node.name
        case Asking():
            return "gen", node.variable.name
    return None, None


def _failed(cause: BaseException, where: Location, node: Node) -> ProgramError:
    if isinstance(cause, ProgramError):
        return cause
    if isinstance(cause, asyncio.CancelledError):
        cause = Aborted("The program was stopped while this ran.")
    return ProgramError(cause, where, str(node))
