"""What a parser of a model's output takes and gives: text in pieces, events out; and the events of a whole output.

A stream and a non-stream use the same parser: the latter collects the events. Must not know tokens, templates or HTTP.
Called by the surfaces of runtime/api, which give each output a parser of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call. `parameters`: the JSON schema of its arguments; None: it has none.

    `strict`: arguments must follow the schema even where the model may choose not to call.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    strict: bool = False

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema of the arguments as a whole."""
        if self.parameters:
            return self.parameters
        return {"type": "object", "properties": {}, "additionalProperties": False}


class TextDelta(msgspec.Struct, frozen=True, tag=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag=True):
    text: str


class CallBegun(msgspec.Struct, frozen=True, tag=True):
    """`index` counts the calls of one output from 0."""

    index: int
    id: str
    name: str


class ArgumentsDelta(msgspec.Struct, frozen=True, tag=True):
    """More of a call's arguments, as JSON text."""

    index: int
    text: str


class CallEnded(msgspec.Struct, frozen=True, tag=True):
    """The call is complete. A call without this was cut off, or broken by the model."""

    index: int


Event = TextDelta | ReasoningDelta | CallBegun | ArgumentsDelta | CallEnded


class Span(msgspec.Struct, frozen=True):
    """Part of a text, in characters: from `begin` up to `end`."""

    begin: int
    end: int


class TextSpan(msgspec.Struct, frozen=True):
    """A span that was read as text. `run` counts what stood between texts: reasoning, and calls."""

    begin: int
    end: int
    run: int


class OutputParser(Protocol):
    """The state of one output. For every way of cutting a text into pieces the events say the same.

    Adjacent deltas of a kind belong together; only what may still become part of a marker is held back. Nothing that
    a model writes makes a parser raise.
    """

    def push(self, text: str) -> list[Event]:
        """What became certain with `text`."""
        ...

    def finish(self) -> list[Event]:
        """The rest: the output has ended. Nothing may be pushed afterwards."""
        ...

    @property
    def reasoning(self) -> list[Span]:
        """Where in the pushed text reasoning was, with the tag that ended it."""
        ...

    @property
    def call_ends(self) -> list[int]:
        """Where in the pushed text each finished call ended, in characters."""
        ...

    @property
    def text(self) -> Sequence[TextSpan]:
        """Where in the pushed text the answer's was, white space that isn't said included; in order."""
        ...

    @property
    def decided(self) -> int:
        """Up to which character of the pushed text it is known what it is."""
        ...


class ParsedCall(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments`: JSON text; what came of it where the call isn't `finished`."""

    id: str
    name: str
    arguments: str
    finished: bool = True


class ParsedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A whole output. `truncated`: a call in it was begun and not finished."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ParsedCall, ...] = ()

    @property
    def truncated(self) -> bool:
        return any(not call.finished for call in self.calls)


ToolChoiceMode = Literal["auto", "none", "required"]


class NamedTool(msgspec.Struct, frozen=True):
    """The tool choice that asks for one tool by name."""

    name: str


ToolChoice = ToolChoiceMode | NamedTool


def collect(events: Iterable[Event]) -> ParsedOutput:
    """The output that the events of one parser tell of, those of `finish` included."""
    text: list[str] = []
    reasoning: list[str] = []
    begun: list[CallBegun] = []
    arguments: list[list[str]] = []
    finished: set[int] = set()
    for event in events:
        match event:
            case TextDelta():
                text.append(event.text)
            case ReasoningDelta():
                reasoning.append(event.text)
            case CallBegun():
                begun.append(event)
                arguments.append([])
            case ArgumentsDelta():
                arguments[event.index].append(event.text)
            case CallEnded():
                finished.add(event.index)
    calls = tuple(
        ParsedCall(id=call.id, name=call.name, arguments="".join(said), finished=call.index in finished)
        for call, said in zip(begun, arguments, strict=True)
    )
    return ParsedOutput(text="".join(text), reasoning="".join(reasoning), calls=calls)
