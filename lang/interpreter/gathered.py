"""What a state has gathered so far: its text and turns, its streams, what its calls used, and their recording.

Filled on the backend's loop by whatever executes the state (execution.py, or lang/compiling/compiled.py from events);
read by states.
"""

from __future__ import annotations

from palmette.lang.choices import report
from palmette.lang.interpreter.instructions import Selection
from palmette.lang.interpreter.outputs import OutputRecord, call_ids, usage_report
from palmette.lang.interpreter.transcript import Transcript
from palmette.lang.interpreter.variables import Variable
from palmette.lang.streams import TextStream
from palmette.lang.traces.trace import Recording
from palmette.runtime.messages.branches import ChoiceScores, Chunk
from palmette.runtime.messages.replies import Usage


class Gathered:
    """Of one state. `stream` is its text as it grows."""

    __slots__ = ("_fork_content", "_fork_piece", "_fork_turn", "_scopes", "recording", "stream", "transcript", "usages")

    def __init__(self) -> None:
        self.stream = TextStream()
        self.usages: list[Usage] = []
        self.transcript = Transcript()
        self.recording = Recording()
        self._fork_piece = 0
        self._fork_turn = self._fork_content = 0
        self._scopes: dict[Variable, int] = {}  # where the text of each begins

    @property
    def text(self) -> str:
        return "".join(self.transcript.pieces)

    def grow(self, text: str) -> None:
        """The branch holds more text."""
        if text:
            self.transcript.pieces.append(text)
            self.stream.push(text)

    def wrote(self, record: OutputRecord, chunk: Chunk) -> None:
        """A piece of an output that stands in the text."""
        self.grow(chunk.text)
        self.transcript.write(record.add(chunk), chunk.reasoning)

    def selected(self, selection: Selection, scores: ChoiceScores) -> tuple[int, str]:
        """A selection's scores; which choice that is, and its text. The text is the branch's own to grow by."""
        index, details = selection.node.method.decide(scores)
        if scores.chosen is not None:
            index = scores.chosen
        chosen = selection.node.choices[index]
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
        return index, chosen

    # Scopes: text between two places, as a variable

    def scope_begins(self, variable: Variable) -> None:
        self._scopes[variable] = len(self.transcript.pieces)

    def scope_ends(self, variable: Variable) -> str:
        """The text since it began, which the variable gets."""
        text = "".join(self.transcript.pieces[self._scopes.pop(variable) :])
        variable.fill(text)
        return text

    # Forks

    def begin_behind(self, parent: Gathered) -> None:
        """A forked state begins where `parent` stands."""
        transcript = parent.transcript
        self.transcript, self._fork_piece = transcript.copy(), len(transcript.pieces)
        self._fork_turn, self._fork_content = len(transcript.messages), len(transcript.content)

    def append_turns(self, fork: Gathered) -> None:
        """The turns, or the part of the open one, that `fork` has had since it began."""
        self.transcript.append(fork.transcript, since_turn=fork._fork_turn, since_content=fork._fork_content)

    @property
    def text_since_fork(self) -> str:
        return "".join(self.transcript.pieces[self._fork_piece :])
