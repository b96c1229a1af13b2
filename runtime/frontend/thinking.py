"""Tells what a model thinks from what it answers, while it writes. Knows text only; made by StateEditor.splitter."""

from __future__ import annotations

from collections.abc import Collection

from palmette.runtime.parsers.parser import output_parser
from palmette.runtime.parsers.protocol import OutputParser, ReasoningDelta, TextDelta
from palmette.runtime.parsers.registry import NONE, Formats, detect


class ThinkingSplitter:
    """One output's reasoning and answer. For every way of cutting the text the concatenations are the same.

    `marks`: the tags; special tokens that are spelt like one of them have to be in the text.
    """

    def __init__(self, parser: OutputParser, marks: Collection[str] = ()) -> None:
        self._parser = parser
        self.marks = marks

    @classmethod
    def of(cls, reasoning: str, chat_template: str | None, *, prompt: str = "") -> ThinkingSplitter:
        """`reasoning`: a format's name, or "auto": the one that the template asks for, else the commonest.

        `prompt`: its end, by which it is known whether the template has begun the reasoning already.
        """
        name = detect(chat_template, reasoning=reasoning).reasoning
        if name == NONE and reasoning != NONE:
            name = "think"
        formats = Formats(tools=NONE, reasoning=name)
        return cls(output_parser(formats, prompt=prompt), formats.marks)

    def push(self, text: str, *, ended: bool = False) -> tuple[str, str]:
        """What became certain with `text`, of the reasoning and of the answer; at the end, all of it."""
        events = self._parser.push(text)
        if ended:
            events += self._parser.finish()
        thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        answer = "".join(event.text for event in events if isinstance(event, TextDelta))
        return thought, answer
