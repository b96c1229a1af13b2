"""What executes one state's nodes, as states see it: nodes go in, what they give is gathered, and a failure reaches
everybody who waits.

Interpreters (interpreter.py) talk to a backend; recorders (lang/compiling/recording.py) take a program down to be
compiled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from palmette.lang.arrival import Arrival
from palmette.lang.backends.base import Backend
from palmette.lang.errors import Location, ProgramError
from palmette.lang.interpreter.gathered import Gathered
from palmette.lang.interpreter.instructions import Asking, Barrier, End, Fork, Generation, Node, Selection
from palmette.lang.interpreter.variables import Scope
from palmette.lang.traces.trace import Kind
from palmette.runtime.errors import Aborted, EngineDied
from palmette.runtime.messages.branches import Part


class Executor:
    """`at`: the node that runs, and its line; `done`: the state is over, failed or not."""

    def __init__(self, backend: Backend, scope: Scope) -> None:
        self.loop = backend.loop
        self.scope = scope
        self.gathered = Gathered()
        self.done: Arrival[None] = Arrival()
        self.failure: ProgramError | None = None
        self.at: tuple[Location, Node] = (Location("?", 0, "?"), End())
        self._lock = threading.Lock()

    def submit(self, nodes: Sequence[Node], where: Location) -> None:
        """Append `nodes`, from any thread. Raises the state's failure where it has failed."""
        raise NotImplementedError

    def fail(self, error: ProgramError) -> None:
        """Fail the state from any thread: its readers get `error` now, what runs is aborted."""
        raise NotImplementedError

    def on_begin(self, callback: Callable[[Sequence[Part]], None]) -> None:
        """Call back with what the first verb appends."""
        raise NotImplementedError

    def engine_is_gone(self, where: Location, node: str) -> None:
        """The loop is closed. Raises that, and fails the state."""
        cause = EngineDied("The engine of this program was closed.", hint="Run it on another engine.")
        error = ProgramError(cause, where, node)
        if self.take_failure(error):
            self.done.set_exception(error)
        raise error

    def take_failure(self, error: ProgramError) -> bool:
        """Record the first failure and tell everybody who waits; False where the state is over already."""
        with self._lock:
            if self.failure is not None or self.done.done():
                return False
            self.failure = error
            where, node = self.at
            self.gathered.recording.fail(str(error), *called(node), where)
            dropped = self._drop()
        for node in dropped:
            if isinstance(node, Barrier):
                node.reached.set_exception(error)
            elif isinstance(node, Fork):
                for child in node.children:
                    child.fail(error)
        self.scope.fail(error)
        self.gathered.stream.end(error)
        return True

    def _drop(self) -> list[Node]:
        """The nodes that wait are not going to run. Called with the lock held."""
        return []


def called(node: Node) -> tuple[Kind | None, str | None]:
    """What a trace calls a node that computes something, and its name."""
    match node:
        case Generation():
            return "gen", node.node.name
        case Selection():
            return "select", node.node.name
        case Asking():
            return "gen", node.variable.name
    return None, None


def failure_of(cause: BaseException, where: Location, node: Node) -> ProgramError:
    """What a program is told of what a node raised."""
    if isinstance(cause, ProgramError):
        return cause
    if isinstance(cause, asyncio.CancelledError):
        cause = Aborted("The program was stopped while this ran.")
    return ProgramError(cause, where, str(node))
