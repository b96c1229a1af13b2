"""The parser of one output: reasoning first, then text and calls in one tool format. See protocol.OutputParser.

Called by the surfaces of runtime/api, with the formats that registry.py chose and the tools of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palmette.runtime.parsers.cursor import Cursor, Ended, Markers, NotACall, Steps
from palmette.runtime.parsers.emitter import Emitter, Writer, call_id
from palmette.runtime.parsers.formats import harmony
from palmette.runtime.parsers.protocol import Event, OutputParser, Span, TextSpan, Tool
from palmette.runtime.parsers.reasoning import ReasoningTags, reasoning_tags
from palmette.runtime.parsers.registry import NONE, Formats, tool_format
from palmette.runtime.parsers.tool_format import ToolFormat


class _Parser:
    """Runs the reading of one output, piece by piece."""

    def __init__(
        self,
        format: ToolFormat | None,
        reasoning: ReasoningTags | None,
        tools: Sequence[Tool],
        *,
        offered: bool,
        new_id: Callable[[], str],
    ) -> None:
        self._format = format
        self._reasoning = reasoning
        self._cursor = Cursor()
        self._emitter = Emitter(new_id)
        self._writer = Writer(self._cursor, self._emitter, {tool.name: tool for tool in tools}, offered=offered)
        self._opened = 0  # characters pushed for what the prompt began
        self._steps: Steps[None] | None = self._read()
        self._step()

    def push(self, text: str) -> list[Event]:
        self._cursor.feed(text)
        self._step()
        return self._emitter.take()

    def finish(self) -> list[Event]:
        self._cursor.end()
        self._step()
        assert self._steps is None, "the reader waits for text behind the end"
        self._emitter.finish()
        return self._emitter.take()

    def open(self, text: str) -> list[Event]:
        """Push the end of the prompt, which the output continues."""
        self._opened = len(text)
        return self.push(text)

    @property
    def reasoning(self) -> list[Span]:
        spans = self._writer.places.reasoning(self._cursor.position)
        return [Span(max(span.begin - self._opened, 0), max(span.end - self._opened, 0)) for span in spans]

    @property
    def call_ends(self) -> list[int]:
        return [max(end - self._opened, 0) for end in self._writer.places.call_ends]

    @property
    def text(self) -> Sequence[TextSpan]:
        spans = self._writer.places.text
        if not self._opened:
            return spans
        return [TextSpan(span.begin - self._opened, span.end - self._opened, span.run) for span in spans]

    @property
    def decided(self) -> int:
        return max(self._cursor.decided - self._opened, 0)

    def _step(self) -> None:
        if self._steps is None:
            return
        try:
            next(self._steps)
        except (StopIteration, Ended):
            self._steps = None
            held = self._cursor.release()
            if not self._emitter.call_open:  # else it is the beginning of a tag, of a call that stays unfinished
                self._writer.text(held + self._cursor.rest())

    def _read(self) -> Steps[None]:
        cursor, reasoning = self._cursor, self._reasoning
        if reasoning is not None:
            cursor.hold()
            yield from cursor.space()
            if (yield from cursor.skip(reasoning.begin)):
                yield from self._read_reasoning(reasoning)
            else:
                self._writer.text(cursor.release())
        yield from self._read_answer(reasoning)

    def _read_reasoning(self, tags: ReasoningTags) -> Steps[None]:
        """Behind the begin tag."""
        cursor = self._cursor
        yield from cursor.space()
        yield from cursor.skip(tags.begin)  # a model that repeats what the prompt ended with
        cursor.release()
        interrupts = self._format.interrupts if self._format is not None else ()
        end = yield from cursor.until(Markers([tags.end, *interrupts]), self._writer.reasoning)
        if end in interrupts:
            cursor.give_back(end)
        self._writer.end_reasoning()

    def _read_answer(self, reasoning: ReasoningTags | None) -> Steps[None]:
        cursor, format, emitter = self._cursor, self._format, self._emitter
        opens = format.opens if format is not None else ()
        dropped = reasoning.answer if reasoning is not None else ()
        again = (reasoning.begin,) if reasoning is not None and reasoning.anywhere else ()
        markers = Markers([*opens, *dropped, *again])
        while True:
            found = yield from cursor.until(markers, self._writer.text)
            if found in dropped:
                continue
            if reasoning is not None and found in again:
                yield from self._read_reasoning(reasoning)
                continue
            assert format is not None
            cursor.hold(found)
            try:
                yield from format.read(found, cursor, self._writer)
            except NotACall:
                emitter.abandon()
                self._writer.text(cursor.release())
            else:
                closers = cursor.release()
                self._writer.text(closers[len(closers.rstrip()) :])


def output_parser(
    formats: Formats,
    tools: Sequence[Tool] = (),
    *,
    offered: bool | None = None,
    prompt: str = "",
    new_id: Callable[[], str] | None = None,
) -> OutputParser:
    """A parser for one output. Raises InvalidRequest for a format that isn't known.

    `tools`: those on offer, by which values are typed and calls without markers are known. `offered`: whether calls
    are read at all (by default where there are tools); else they are text. `prompt`: the rendered prompt or its end, by
    which it is known whether the template has begun the reasoning already. `new_id`: instead of the format's own ids.
    """
    offered = bool(tools) if offered is None else offered
    is_harmony = harmony.HARMONY.name in (formats.tools, formats.reasoning)
    format: ToolFormat | None = None
    if is_harmony:
        format = harmony.HARMONY
    elif offered and formats.tools != NONE:
        format = tool_format(formats.tools)
    reasoning = None if is_harmony or formats.reasoning == NONE else reasoning_tags(formats.reasoning)
    make_id = new_id or (format.new_id if format is not None else call_id)
    parser = _Parser(format, reasoning, tools, offered=offered, new_id=make_id)
    opening = harmony.opening(prompt) if is_harmony else reasoning.opening(prompt) if reasoning is not None else ""
    if opening:
        said = parser.open(opening)
        assert not said or is_harmony, said
    return parser
