"""The events of a compiled program's track, taken into its state: each goes the way that an interpreter's results go.

One Player a track; made and fed by the session (session.py), which has the values that tracks read of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palmette.lang.compiling.recording import Passive, Recorded, Recorder
from palmette.lang.compiling.symbols import Symbol
from palmette.lang.compiling.track_calls import TrackCalls
from palmette.lang.control import Control
from palmette.lang.errors import Location, ProgramError
from palmette.lang.interpreter.instructions import Concatenate, Fork, Generation, ScopeBegin, ScopeEnd, Selection
from palmette.lang.interpreter.outputs import OutputRecord
from palmette.lang.interpreter.planning import part_of
from palmette.lang.nodes import TextNode
from palmette.runtime.errors import InvalidRequest, from_info
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.programs import ProgramEvent, Scalar, Value

if TYPE_CHECKING:
    from palmette.lang.compiling.session import Session


class NotWritten(InvalidRequest):
    """Of a variable that the branches that were taken don't write."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} was not written: the branch that writes it was not taken.",
            hint="Write it in every branch, or before them.",
        )


class Player:
    """Takes the events of one track into its state."""

    def __init__(self, recorder: Recorder, session: Session) -> None:
        self.recorder = recorder
        self.calls = TrackCalls(recorder.gathered.recording)
        self._session = session
        self._at = -1
        self._records: list[OutputRecord] = []

    def take(self, event: ProgramEvent) -> None:
        recorder = self.recorder
        if recorder.failure is not None or recorder.done.done():
            return
        recorded = recorder.recorded[event.operation]
        recorder.at = (recorded.where, recorded.node)
        if event.error is not None:
            cause = recorded if event.origin is None else self._session.origin(*event.origin)
            self.fail(self._session.raised(cause) or from_info(event.error), cause.where, cause.node)
            return
        try:
            first = event.operation > self._at
            if first:
                self._at = event.operation
                self._begin(recorded)
            self.calls.take(recorded, event, self._session.ready(recorded.operation), first=first)
            self._take(recorded, event)
        except Exception as cause:  # the output is not what the program asked for
            self.fail(cause, recorded.where, recorded.node)

    def fail(self, cause: BaseException, where: Location, node: object) -> None:
        recorder = self.recorder
        error = cause if isinstance(cause, ProgramError) else ProgramError(cause, where, str(node))
        if recorder.take_failure(error):
            for recorded in recorder.recorded:
                for slot in plans.writes(recorded.operation):
                    if slot not in self._session.texts:
                        self._session.failures.setdefault(slot, error)
            recorder.done.set_exception(error)

    def end(self) -> None:
        """Nothing more comes. What wasn't written says so."""
        recorder = self.recorder
        for variable in list(recorder.scope._own):
            if not variable.value.done():
                where, _ = recorder.at
                variable.fail(ProgramError(NotWritten(variable.name), where, f"variable {variable.name!r}"))
        recorder.gathered.stream.end(recorder.failure)
        if not recorder.done.done():
            recorder.done.set_result(None)

    def _begin(self, recorded: Recorded) -> None:
        for node in recorded.passive:
            self._passive(node)
        if isinstance(recorded.node, Generation):
            self._records = [recorded.node.record(index) for index in range(recorded.node.node.count)]

    def _passive(self, node: Passive) -> None:
        written = TextNode(str(self._session.read(node.value))) if isinstance(node, Symbol) else node
        self.recorder.gathered.transcript.take(written)
        self.calls.parts.append(part_of(written))

    def _take(self, recorded: Recorded, event: ProgramEvent) -> None:
        gathered, session = self.recorder.gathered, self._session
        result = event.chunk or event.scores
        if result is not None:
            gathered.grow(result.appended)
        match recorded.node, recorded.operation:
            case Generation() as node, plans.Write() as operation:
                if event.chunk is not None:
                    self._generated(node, operation, event)
            case Selection() as node, plans.Choose(slot=slot):
                if event.scores is not None and event.scores.chosen is not None:
                    session.put(slot, node.node.choices[event.scores.chosen])
                    _, chosen = gathered.selected(node, event.scores)
                    gathered.grow(chosen)
                    self.calls.end()
            case Fork(), plans.Divide(tracks=tracks):
                for index, track in enumerate(tracks):
                    self._fork(session.players[track], self.calls.fork_path(index))
            case Concatenate(children=children), plans.Join(tracks=tracks):
                for child, track in zip(children, tracks, strict=True):
                    self.calls.parts += session.players[track].calls.history
                    gathered.append_turns(child.gathered)
            case ScopeBegin(variable=variable), _:
                gathered.scope_begins(variable)
            case ScopeEnd(variable=variable), plans.Note(slot=slot):
                session.put(slot, gathered.scope_ends(variable))
            case _, plans.Note(slot=slot):
                session.put(slot, gathered.text)
            case Control(), plans.Settle(targets=targets, sources=sources):
                self._settle(recorded, targets, sources)
            case _, plans.Call():
                if event.arguments is not None:
                    session.call(recorded, event)

    def _settle(self, recorded: Recorded, targets: Sequence[int], sources: Sequence[Scalar | Value | None]) -> None:
        session = self._session
        for target, source in zip(targets, sources, strict=True):
            if isinstance(source, Value):
                if session.known(source.slot):  # else a branch within the one that was taken was not
                    session.put(target, str(session.read(source)))
            elif source is not None:
                session.put(target, str(source))
        for variable, value in recorded.fills:
            session.fill(variable, value)

    def _generated(self, generation: Generation, operation: plans.Write, event: ProgramEvent) -> None:
        record, chunk = self._records[event.output], event.chunk
        assert chunk is not None
        if event.output == 0:
            self.recorder.gathered.wrote(record, chunk)
        else:
            record.add(chunk)
        if chunk.finish is None or record.usage is None:
            return
        self.recorder.gathered.usages.append(record.usage)
        self._session.put(operation.slots[event.output], record.text)
        if operation.thoughts:
            self._session.put(operation.thoughts[event.output], record.reasoning)
        several = generation.node.count > 1
        if several:
            self.calls.end(event.output)
        if all(each.usage is not None for each in self._records):
            try:
                generation.fill(self._records)
            except Exception:
                for slot in operation.slots:  # its text makes no value, so nobody reads it
                    self._session.texts.pop(slot, None)
                raise
        if not several:
            self.calls.end()

    def _fork(self, player: Player, path: str) -> None:
        player.calls.start(path)
        player.recorder.gathered.begin_behind(self.recorder.gathered)
