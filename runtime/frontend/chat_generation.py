"""A running chat turn as an iterator of ChatChunks: one generation, and the parser that reads it.

Streams and whole answers come from here alike. Made by chats.py; used by the chat surfaces.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from io import StringIO

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.frontend.chat_turn import (
    ChatChunk,
    ChatFinish,
    ChatFinishReason,
    ChatOutput,
    TextLogprob,
    ToolCall,
)
from palmette.runtime.frontend.generation import Generation, gather
from palmette.runtime.messages.branches import Chunk
from palmette.runtime.messages.replies import Finish, TokenLogprob
from palmette.runtime.messages.tokens import count, pack
from palmette.runtime.parsers.protocol import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    Event,
    OutputParser,
    ReasoningDelta,
    Span,
    TextDelta,
    collect,
)


class FinishedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that came to its end: what the client was told of text and calls, and its kept tokens (packed)."""

    text: str
    calls: tuple[ToolCall, ...]
    tokens: bytes


class TurnRules(msgspec.Struct, frozen=True, kw_only=True):
    """How an output is read. `parallel` False: the turn ends with its first call. `must_call`: the output is calls
    alone, and what was cut off before its call could be read is no text. `spelled`: the special tokens that are written
    out for the parser; they never show in a text."""

    parallel: bool = True
    must_call: bool = False
    spelled: Mapping[int, bytes] = {}


class _Told:
    """Text and calls so far, in strings that grow: a stream has an event a token."""

    def __init__(self) -> None:
        self._text = StringIO()
        self._begun: list[CallBegun] = []
        self._arguments: list[StringIO] = []
        self.ended = 0

    @property
    def begun(self) -> int:
        return len(self._begun)

    def note(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._text.write(text)
            case CallBegun():
                self._begun.append(event)
                self._arguments.append(StringIO())
            case ArgumentsDelta(index=index, text=text):
                self._arguments[index].write(text)
            case CallEnded():
                self.ended += 1

    def finished(self, tokens: bytes) -> FinishedTurn:
        calls = tuple(
            ToolCall(id=call.id, name=call.name, arguments=said.getvalue())
            for call, said in zip(self._begun, self._arguments, strict=True)
        )
        return FinishedTurn(text=self._text.getvalue(), calls=calls, tokens=tokens)


class ChatGeneration:
    """An async iterator of ChatChunk. Raises the engine's error where the request failed.

    Closing it, or cancelling the task that waits, aborts it; it must be read to its end or closed.
    """

    def __init__(
        self,
        generation: Generation,
        parser: OutputParser,
        rules: TurnRules,
        *,
        explain: Callable[[GrammarError], GrammarError],
        abort: Callable[[str], object],
        on_finish: Callable[[FinishedTurn], object],
    ) -> None:
        """`explain` puts the engine's complaint about the grammar in the caller's terms; `abort` asks the engine to end
        the request of that id."""
        self._generation = generation
        self._parser = parser
        self._rules = rules
        self._explain = explain
        marks = sorted((mark.decode() for mark in rules.spelled.values()), key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, marks))) if marks else None
        self._abort = abort
        self._on_finish = on_finish
        self._told = _Told()
        self._tokens = 0  # handed out
        self._undecided: deque[tuple[int, TokenLogprob]] = deque()  # with the character in which each begins
        self._markers = frozenset(rules.spelled)
        self._span = 0  # of the text's, where the next token is looked for
        self._cut: int | None = None  # tokens up to the end of the only call

    @property
    def id(self) -> str:
        return self._generation.id

    def __aiter__(self) -> ChatGeneration:
        return self

    async def __anext__(self) -> ChatChunk:
        while True:
            try:
                chunk = await anext(self._generation)
            except GrammarError as error:
                raise self._explain(error) from error
            made = self._read(chunk)
            if made.events or made.logprobs or made.text_logprobs or made.finish is not None:
                return made

    async def begun(self) -> None:
        """As a Generation's."""
        try:
            await self._generation.begun()
        except GrammarError as error:
            raise self._explain(error) from error

    def close(self) -> None:
        """Abort the request unless it has finished. Idempotent."""
        self._generation.close()

    async def aclose(self) -> None:
        self.close()

    def _read(self, chunk: Chunk) -> ChatChunk:
        if self._cut is not None:  # what comes until the engine has heard of it is nobody's
            return ChatChunk() if chunk.finish is None else ChatChunk(finish=self._finish(chunk.finish))
        events = self._parser.push(chunk.text)
        if chunk.finish is not None:
            events += self._parser.finish()
        logprobs, new = chunk.logprobs, count(chunk.tokens)
        if not self._rules.parallel and (end := _first_end(events)) is not None:
            events = events[: end + 1]
            self._cut = self._generation.output.tokens_before(self._parser.call_ends[0])
            new = max(min(new, self._cut - self._tokens), 0)
            logprobs = logprobs[:new] if logprobs is not None else None
            if chunk.finish is None:
                self._abort(self.id)
        text_logprobs = self._in_text(logprobs or (), last=chunk.finish is not None or self._cut is not None)
        self._tokens += new
        events = self._without_marks([event for event in events if not self._is_remnant(event)])
        for event in events:
            self._told.note(event)
        finish = self._finish(chunk.finish) if chunk.finish is not None else None
        return ChatChunk(events=tuple(events), logprobs=logprobs, text_logprobs=text_logprobs, finish=finish)

    def _in_text(self, logprobs: Sequence[TokenLogprob], *, last: bool) -> tuple[TextLogprob, ...]:
        """Those of the tokens so far that begin in text, and were not told yet. `logprobs` are the next tokens'."""
        if not logprobs and not self._undecided:
            return ()
        output = self._generation.output
        self._undecided += [(output.begin_of(self._tokens + at), each) for at, each in enumerate(logprobs)]
        spans, decided = self._parser.text, self._parser.decided
        found: list[TextLogprob] = []
        while self._undecided and (last or self._undecided[0][0] < decided):
            begin, logprob = self._undecided.popleft()
            while self._span < len(spans) and spans[self._span].end <= begin:
                self._span += 1
            in_text = self._span < len(spans) and spans[self._span].begin <= begin
            if in_text and logprob.token not in self._markers:
                found.append(TextLogprob(spans[self._span].run, logprob))
        return tuple(found)

    def _is_remnant(self, event: Event) -> bool:
        return self._rules.must_call and isinstance(event, TextDelta)

    def _without_marks(self, events: list[Event]) -> list[Event]:
        """Markers that turned out to open nothing were special tokens, which are no part of a text."""
        if self._marks is None:
            return events
        kept: list[Event] = []
        for event in events:
            if isinstance(event, TextDelta | ReasoningDelta) and self._marks.search(event.text):
                text = self._marks.sub("", event.text)
                if text:
                    kept.append(msgspec.structs.replace(event, text=text))
            else:
                kept.append(event)
        return kept

    def _finish(self, finish: Finish) -> ChatFinish:
        usage = finish.usage
        kept, _ = self._generation.output.handed_out()
        if self._cut is not None:
            usage = msgspec.structs.replace(usage, completion_tokens=self._cut)
            kept = kept[: self._cut]
        if finish.reason != "abort" or self._cut is not None:
            self._on_finish(self._told.finished(pack(kept)))
        return ChatFinish(
            reason=self._reason(finish),
            usage=usage,
            reasoning_tokens=self._reasoning_tokens(self._parser.reasoning, usage.completion_tokens),
            matched=finish.matched if self._cut is None else None,
        )

    def _reason(self, finish: Finish) -> ChatFinishReason:
        if self._cut is not None:
            return "tool_calls"
        if finish.reason != "stop":
            return finish.reason
        if self._told.begun > self._told.ended:  # by a stop string of the caller's, or broken by the model
            return "stop" if isinstance(finish.matched, str) else "length"
        return "tool_calls" if self._told.begun else "stop"

    def _reasoning_tokens(self, spans: Sequence[Span], most: int) -> int:
        """Of the first `most` tokens: what came behind a turn's only call is no part of it."""

        def before(character: int) -> int:
            return min(self._generation.output.tokens_before(character), most)

        return sum(before(span.end) - before(span.begin) for span in spans)


def _first_end(events: Sequence[Event]) -> int | None:
    return next((index for index, event in enumerate(events) if isinstance(event, CallEnded)), None)


async def collect_chats(generations: Sequence[ChatGeneration]) -> list[ChatOutput]:
    """Every turn, in the order of `generations`. Where one fails, or the caller is cancelled, all are closed."""
    return await gather(generations, _whole)


async def _whole(generation: ChatGeneration) -> ChatOutput:
    chunks = [chunk async for chunk in generation]
    finish = chunks[-1].finish
    assert finish is not None, "a generation ends with a finish, or raises"
    parsed = collect(event for chunk in chunks for event in chunk.events)
    return ChatOutput(
        text=parsed.text,
        reasoning=parsed.reasoning,
        calls=parsed.calls,
        logprobs=tuple(logprob for chunk in chunks for logprob in chunk.logprobs or ()),
        finish=finish,
    )
