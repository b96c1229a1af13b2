"""The calls of a compiled program, for its trace: one track's events, written into its state's recording.

Calls are those that an interpreter would have recorded, so a compiled run's trace shows and replays like any other.
A call begins when the one before it has ended and what it reads is there. compiled.py is its only caller.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from palmette.lang.compiling.recording import Recorded
from palmette.lang.interpreter.instructions import Fork, Generation, Selection
from palmette.lang.traces.trace import Open, Recording
from palmette.runtime.messages.branches import Chunk, Part, Text
from palmette.runtime.messages.programs import Finish, ProgramEvent


class TrackCalls:
    """`parts`: what is appended and not part of a call yet; `history`: everything that was."""

    def __init__(self, recording: Recording) -> None:
        self.parts: list[Part] = []
        self.history: list[Part] = []
        self._recording = recording
        self._since = time.monotonic()
        self._open: dict[int, Open] = {}  # by output
        self._forks = ""  # how the paths of the running fork's states begin

    def start(self, path: str) -> None:
        """The state was forked just now."""
        self._recording.path, self._since = path, time.monotonic()

    def fork_path(self, index: int) -> str:
        """Of a state of the fork that was noted last."""
        return f"{self._forks}{index}/"

    def take(self, recorded: Recorded, event: ProgramEvent, ready: float, *, first: bool) -> None:
        """Before the event is played. `ready`: when the values that the operation reads were there; `first`: it is the
        operation's first event."""
        start = max(self._since, ready)
        match recorded.node:
            case Generation(node=node) if event.chunk is not None:
                if first and node.count > 1:  # the prompt, from which all outputs start
                    self._note_fork(recorded, event.chunk, start)
                    return
                if event.output not in self._open:
                    state = self.fork_path(event.output - 1) if event.output else None
                    self._open[event.output] = self._recording.begin(
                        "gen", node.name, recorded.where, start, self._taken(), state=state
                    )
                self._open[event.output].add(event.chunk)
            case Selection(node=selection) if event.scores is not None:
                call = self._recording.begin("select", selection.name, recorded.where, start, self._taken())
                call.add(event.scores)
                self._open[0] = call
            case Fork() if event.chunk is not None:
                self._note_fork(recorded, event.chunk, start)
            case _:
                if event.chunk is not None:
                    self._note_text(recorded, event.chunk.appended, start)
                if event.arguments is None:
                    self._since = time.monotonic()

    def end(self, output: int = 0) -> None:
        """The call that wrote `output` is over."""
        call = self._open.pop(output, None)
        if call is not None:
            call.close()
            self._since = call.end

    def _note_fork(self, recorded: Recorded, chunk: Chunk, start: float) -> None:
        self._forks = self._recording.fork()
        self._recording.note("fork", recorded.where, self._taken(), chunk.appended, start)
        self._since = time.monotonic()

    def _note_text(self, recorded: Recorded, appended: str, start: float) -> None:
        parts = self._taken()
        known = isinstance(recorded.operation, Finish) and all(isinstance(part, Text) for part in parts)
        if appended and not known:  # the program's own text at its end is nothing that was computed
            self._recording.note("text", recorded.where, parts, appended, start)

    def _taken(self) -> Sequence[Part]:
        parts, self.parts = self.parts, []
        self.history += parts
        return parts
