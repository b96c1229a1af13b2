"""What a parser says: events, with the white space that a template puts around calls and reasoning taken off.

White space before or between calls, and after the last, is the template's, so it is said only where text follows it:
a conversation that is rendered again has the text that the model wrote. Must not know formats.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable

from palmette.runtime.parsers.cursor import Cursor
from palmette.runtime.parsers.protocol import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    Event,
    ReasoningDelta,
    Span,
    TextDelta,
    TextSpan,
    Tool,
)

_BASE62 = string.digits + string.ascii_letters
BLOCK_BREAK = "\n\n"  # between two blocks of the same kind


def call_id() -> str:
    return "call_" + "".join(secrets.choice(_BASE62) for _ in range(24))


def short_call_id() -> str:
    """Nine characters: what Mistral's templates accept, and nothing else."""
    return "".join(secrets.choice(_BASE62) for _ in range(9))


class _Spoken:
    """One kind of text: white space at its end waits for what follows."""

    def __init__(self, trim: bool = False) -> None:
        self.said = False
        self.trim = trim  # line feeds at the beginning go
        self._space: list[str] = []
        self._break = False

    def say(self, text: str) -> str:
        """What is certain to be said now."""
        if self.trim:
            text = text.lstrip("\n")
            self.trim = not text
        body = text.rstrip()
        if not body:
            self._space.append(text)
            return ""
        begin = "".join(self._space) + body
        if self._break:
            begin = BLOCK_BREAK + begin.lstrip("\n")
            self._break = False
        self._space = [text[len(body) :]]
        self.said = True
        return begin

    def new_block(self) -> None:
        """What comes next stands apart from what was said."""
        self._space.clear()
        self._break = self.said
        self.trim = True

    def rest(self) -> str:
        space, self._space = "".join(self._space), []
        return space


class Emitter:
    """Collects events; `take` hands them out."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._events: list[Event] = []
        self._pieces: list[str] = []
        self._kind: type[TextDelta] | type[ReasoningDelta] | type[ArgumentsDelta] = TextDelta
        self._text = _Spoken()
        self._reasoning = _Spoken(trim=True)
        self._calls = 0
        self._ids: set[str] = set()
        self._after_call = False
        self.call_open = False
        self.run = 0  # reasoning and calls so far, each as one

    @property
    def text_said(self) -> bool:
        """Something else than white space was said as text."""
        return self._text.said

    def text(self, text: str) -> None:
        spoken = self._text.said
        certain = self._text.say(text)
        if certain and not spoken and self._calls:
            certain = certain.lstrip()
        if certain:
            self._after_call = False
            self._put(TextDelta, certain)

    def new_text_block(self) -> None:
        self._text.new_block()

    def reasoning(self, text: str) -> None:
        certain = self._reasoning.say(text)
        if certain:
            self._put_reasoning(certain)

    def end_reasoning(self) -> None:
        """Line feeds around the end of the reasoning are the template's."""
        self._reasoning.new_block()
        if not self._text.said:
            self._text.trim = True

    def used(self, id: str) -> bool:
        return id in self._ids

    def begin(self, name: str, id: str | None = None) -> None:
        """`id`: one that the model's template asks for, not used yet."""
        assert not self.call_open
        if id is None:
            id = self._new_id()
        self._ids.add(id)
        self._flush()
        self._kind = ArgumentsDelta
        self.run += 1
        self._events.append(CallBegun(self._calls, id, name))
        self._calls += 1
        self.call_open = True
        self._after_call = True

    def arguments(self, text: str) -> None:
        assert self.call_open
        if text:
            self._put(ArgumentsDelta, text)

    def end(self) -> None:
        assert self.call_open
        self._flush()
        self._events.append(CallEnded(self._calls - 1))
        self.call_open = False

    def abandon(self) -> None:
        """The call that is open stays unfinished."""
        self._flush()
        self.call_open = False

    def finish(self) -> None:
        """The output has ended."""
        self.abandon()
        if rest := self._reasoning.rest():
            self._put_reasoning(rest)
        if not self._after_call and (rest := self._text.rest()):
            self._put(TextDelta, rest)

    def take(self) -> list[Event]:
        self._flush()
        events, self._events = self._events, []
        return events

    def _put_reasoning(self, text: str) -> None:
        self.run += self._kind is not ReasoningDelta
        self._put(ReasoningDelta, text)

    def _put(self, kind: type[TextDelta] | type[ReasoningDelta] | type[ArgumentsDelta], text: str) -> None:
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        self._pieces.append(text)

    def _flush(self) -> None:
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        if self._kind is TextDelta:
            self._events.append(TextDelta(text))
        elif self._kind is ReasoningDelta:
            self._events.append(ReasoningDelta(text))
        else:
            self._events.append(ArgumentsDelta(self._calls - 1, text))


class Places:
    """Where in an output its parts lie, in characters of the text that the parser was given."""

    def __init__(self) -> None:
        self.call_ends: list[int] = []
        self.text: list[TextSpan] = []
        self._reasoning: list[Span] = []
        self._reasoning_since: int | None = None

    def in_text(self, begin: int, end: int, run: int) -> None:
        if self.text and (last := self.text[-1]).run == run and last.end == begin:
            self.text[-1] = TextSpan(last.begin, end, run)
        elif begin < end:
            self.text.append(TextSpan(begin, end, run))

    def in_reasoning(self, at: int) -> None:
        if self._reasoning_since is None:
            self._reasoning_since = at

    def end_reasoning(self, at: int) -> None:
        """`at`: behind the end tag."""
        if self._reasoning_since is not None:
            self._reasoning.append(Span(self._reasoning_since, at))
            self._reasoning_since = None

    def reasoning(self, at: int) -> list[Span]:
        """Where reasoning was, up to `at`."""
        open_span = [] if self._reasoning_since is None else [Span(self._reasoning_since, at)]
        return self._reasoning + open_span


class Writer:
    """What a format's reader writes to: events, each of which settles what the cursor held."""

    def __init__(self, cursor: Cursor, emitter: Emitter, tools: dict[str, Tool], *, offered: bool) -> None:
        """`offered`: calls may be made at all; `tools`: those that are known."""
        self.offered = offered
        self.places = Places()
        self._cursor = cursor
        self._emitter = emitter
        self._tools = tools

    def tool(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def plausible(self, name: str) -> bool:
        """Whether what no marker opened may be a call: of a tool on offer, or, if none is known, before any text."""
        return name in self._tools if self._tools else not self._emitter.text_said

    def text(self, text: str) -> None:
        """More of the answer, the text that was consumed last."""
        self.places.in_text(self._cursor.position - len(text), self._cursor.position, self._emitter.run)
        self._emitter.text(text)
        self._cursor.settle()

    def new_text(self) -> None:
        """The text that comes now is a block of its own."""
        self._emitter.new_text_block()

    @property
    def text_said(self) -> bool:
        return self._emitter.text_said

    def reasoning(self, text: str) -> None:
        """More of the reasoning, the text that was consumed last."""
        self.places.in_reasoning(self._cursor.position - len(text))
        self._emitter.reasoning(text)
        self._cursor.settle()

    def end_reasoning(self) -> None:
        self.places.end_reasoning(self._cursor.position)
        self._emitter.end_reasoning()
        self._cursor.settle()

    def begin(self, name: str, id: str | None = None) -> None:
        self._emitter.begin(name, id)
        self._cursor.settle()

    def arguments(self, text: str) -> None:
        self._emitter.arguments(text)
        self._cursor.settle()

    def end(self) -> None:
        self.places.call_ends.append(self._cursor.position)
        self._emitter.end()
        self._cursor.settle()

    def abandon(self) -> None:
        self._emitter.abandon()
        self._cursor.settle()

    def used(self, id: str) -> bool:
        """Whether a call of this output has that id."""
        return self._emitter.used(id)
