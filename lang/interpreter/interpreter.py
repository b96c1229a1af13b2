"""Executes one state's nodes, in order, on the backend's event loop.

Programs write nodes from their own thread (`submit`, cheap: text waits for the next verb); one task at a time drains
them and ends when nothing is left, so an idle state costs neither a thread nor a task. What a node does is in
execution.py. It must not know of engines, tokens' meaning or templates; the states of lang/state.py are its callers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from palmette.lang.backends.base import Backend
from palmette.lang.errors import Location, ProgramError
from palmette.lang.interpreter.execution import Execution
from palmette.lang.interpreter.executor import Executor, failure_of
from palmette.lang.interpreter.instructions import PASSIVE, Concatenate, End, Fork, Node
from palmette.lang.interpreter.planning import travels
from palmette.lang.interpreter.variables import Scope
from palmette.lang.loop import begin
from palmette.runtime.messages.branches import Part


class Interpreter(Executor):
    """One state's execution. `submit` and `fail` may be called from any thread."""

    def __init__(self, backend: Backend, scope: Scope, *, namespace: str = "", waits_for_fork: bool = False) -> None:
        super().__init__(backend, scope)
        self._execution = Execution(backend, namespace, self.gathered, self)
        self._queue: deque[tuple[Node, Location]] = deque()
        self._running = False
        self._waits_for_fork = waits_for_fork
        self._task: asyncio.Task[None] | None = None

    # Called from the program's thread

    def on_begin(self, callback: Callable[[Sequence[Part]], None]) -> None:
        self._execution.connection.on_first = callback

    def submit(self, nodes: Sequence[Node], where: Location) -> None:
        wake = False
        with self._lock:
            if self.failure is not None:
                raise self.failure.again() from self.failure.cause
            for node in nodes:
                self._queue.append((node, where))
                wake = wake or not isinstance(node, PASSIVE)
            start = wake and not self._running and not self._waits_for_fork
            self._running = self._running or start
        if not start or (isinstance(nodes[-1], End) and self._ends_here()):
            return
        if asyncio._get_running_loop() is self.loop:
            self._start()
        elif not self._call_soon(self._start):
            self.engine_is_gone(where, str(nodes[-1]))

    def _ends_here(self) -> bool:
        """The end of an idle state, where nothing has to be asked for: nobody needs to wait for the loop to see that.
        Called while no task is under way and none can start."""
        if not self._execution.ends_with([node for node, _ in self._queue][:-1]):
            return False
        self._queue.clear()
        self.gathered.stream.end()
        self.done.set_result(None)
        if not self._execution.drop():
            self._call_soon(self._close)
        return True

    def fail(self, error: ProgramError) -> None:
        if self.take_failure(error) and not self._call_soon(self._stop):
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

    def _drop(self) -> list[Node]:
        dropped = [node for node, _ in self._queue]
        self._queue.clear()
        return dropped

    # On the loop

    def _start(self) -> None:
        self._task = begin(self.loop, self._drain())

    def _close(self) -> None:
        self._task = begin(self.loop, self._execution.close())

    def _stop(self) -> None:
        running = self._task
        if running is not None:
            running.cancel()
        self._task = begin(self.loop, self._stopped(running))

    async def _stopped(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        await self._release()

    async def _drain(self) -> None:
        while batch := self._next():
            self.at = (batch[0][1], batch[0][0])
            try:
                if travels(batch[0][0]):
                    await self._execution.run(batch)
                else:
                    await self._execute(batch[0][0])
            except Exception as cause:
                self.take_failure(failure_of(cause, *self.at))
            except asyncio.CancelledError as cause:
                if self.take_failure(failure_of(cause, *self.at)):
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

    def ends(self) -> bool:
        """Whether nothing but the end is left."""
        with self._lock:
            return len(self._queue) == 1 and isinstance(self._queue[0][0], End)

    async def _execute(self, node: Node) -> None:
        """What is a message of its own, or none."""
        match node:
            case Fork(children):
                await self._fork(_interpreters(children))
            case Concatenate(children):
                for child in children:
                    await child.done
                self._execution.concatenate([child._execution for child in _interpreters(children)])
            case End():
                await self._execution.end()
                await self._release()
            case _:
                await self._execution.execute(node)

    async def _fork(self, children: Sequence[Interpreter]) -> None:
        try:
            forks = await self._execution.fork(len(children))
        except BaseException as cause:
            error = self.failure or failure_of(cause, *self.at)
            for child in children:
                child.fail(error)
            raise
        for child, fork in zip(children, forks, strict=True):
            child._execution.adopt(fork, self._execution)
            child._begin()

    def _begin(self) -> None:
        """A forked state stands where its parent does, and may start."""
        with self._lock:
            self._waits_for_fork = False
            failed = self.failure is not None
            start = not failed and any(not isinstance(node, PASSIVE) for node, _ in self._queue)
            self._running = self._running or start
        if start:
            self._start()
        elif failed:
            self._task = begin(self.loop, self._release())

    async def _release(self) -> None:
        """Close the branch, and say that the state is over."""
        try:
            await self._execution.close()
        finally:
            self.gathered.stream.end(self.failure)
            if not self.done.done():
                if self.failure is None:
                    self.done.set_result(None)
                else:
                    self.done.set_exception(self.failure)


def _interpreters(children: Sequence[Executor]) -> list[Interpreter]:
    """Forks of a state that is interpreted are, too."""
    interpreted = [child for child in children if isinstance(child, Interpreter)]
    assert len(interpreted) == len(children)
    return interpreted
