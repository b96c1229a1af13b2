"""What a program did, call by call: when, how many tokens were computed and reused, what was waited for.

Every state keeps a Recording, which its interpreter fills; `s.trace()` gathers them into a Trace, which can be saved as
JSON lines, shown (`palmette trace FILE`, lang/traces/timeline.py) and replayed without a model (lang/traces/replay.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from palmette.lang.errors import Location
from palmette.lang.tools.tool import ToolResult
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.branches import ChoiceScores, Chunk, Part, Text
from palmette.runtime.messages.replies import Finish, Usage
from palmette.runtime.messages.tool_chats import Said, ToldTurn

Kind = Literal["gen", "select", "text", "fork", "tool"]
FORMAT = 1


class TracedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a program. Times are seconds since the trace's start.

    `state`: "" the program's own; "1.0/": the first child of its first fork; and so on. "text" is text that only the
    backend could make (turns of a template). `appended`: what stood before the output and was new; `texts`: where the
    program's own texts begin in it; `first`: when the first piece came.
    """

    kind: Kind
    state: str = ""
    name: str = ""
    where: str = ""
    start: float = 0.0
    first: float = 0.0
    end: float = 0.0
    appended: str = ""
    texts: tuple[int, ...] = ()
    text: str = ""
    reasoning: str = ""
    answer: str = ""
    tokens: bytes = b""
    finish: Finish | None = None
    usage: Usage | None = None
    scores: ChoiceScores | None = None
    asked: tuple[Said, ...] = ()  # of a turn in a conversation with tools: its messages since the turn before
    told: ToldTurn | None = None  # what it was answered
    arguments: Any = None  # of a tool
    value: Any = None  # what it returned, where that is JSON
    failed: bool = False
    error: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.start


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    palmette_trace: int
    about: dict[str, Any]


class Trace(Sequence[TracedCall]):
    """Calls in order of their start. `about`: what ran, as an agent's task."""

    def __init__(self, calls: Iterable[TracedCall], about: Mapping[str, Any] | None = None) -> None:
        self.calls = sorted(calls, key=lambda call: call.start)
        self.about = dict(about or {})

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[TracedCall]:
        return iter(self.calls)

    def __getitem__(self, index: Any) -> Any:
        return self.calls[index]

    @property
    def seconds(self) -> float:
        """From the first call's start to the last one's end."""
        return max((call.end for call in self.calls), default=0.0)

    def seconds_in(self, *kinds: Kind) -> float:
        """How long at least one call of these kinds ran."""
        total = reached = 0.0
        for call in self.calls:
            if call.kind in kinds and call.end > reached:
                total += call.end - max(call.start, reached)
                reached = call.end
        return total

    def save(self, path: str | Path) -> None:
        """Write it as JSON lines: what it is about, then a line a call."""
        lines = [msgspec.json.encode(_Header(palmette_trace=FORMAT, about=self.about))]
        lines += [msgspec.json.encode(call) for call in self.calls]
        Path(path).write_bytes(b"\n".join(lines) + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote. Raises InvalidRequest naming the line that is none of it."""
        try:
            first, *lines = Path(path).read_bytes().splitlines() or [b""]
        except OSError as error:
            raise InvalidRequest(f"{str(path)!r} can't be read: {error.strerror}.", param="path") from error
        number = 1
        try:
            header = msgspec.json.decode(first, type=_Header)
            calls: list[TracedCall] = []
            for line in lines:
                number += 1
                calls.append(msgspec.json.decode(line, type=TracedCall))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f"{str(path)!r} is no trace: line {number}: {str(error).rstrip('.')}.",
                hint="Write traces with s.trace().save(path).",
                param="path",
            ) from error
        if header.palmette_trace != FORMAT:
            raise InvalidRequest(
                f"{str(path)!r} is of format {header.palmette_trace!r}; this version reads {FORMAT}.", param="path"
            )
        return cls(calls, header.about)

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} calls in {self.seconds:.3f} s>"


class Open:
    """A call that runs."""

    __slots__ = ("asked", "chunks", "end", "error", "first", "kind", "name", "parts", "start", "state", "told", "where")

    def __init__(self, kind: Kind, name: str, where: Location, state: str, start: float, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.kind, self.name, self.where, self.state = kind, name, where, state
        self.start, self.first, self.end = start, 0.0, 0.0
        self.chunks: list[Chunk | ChoiceScores] = []
        self.error = ""
        self.asked: tuple[Said, ...] = ()
        self.told: ToldTurn | None = None

    def answered(self, told: ToldTurn) -> None:
        """Of a turn in a conversation with tools: what it was answered."""
        self.told, self.first = told, time.monotonic()
        self.close()

    def add(self, result: Chunk | ChoiceScores) -> None:
        if not self.chunks:
            self.first = time.monotonic()
        self.chunks.append(result)

    def close(self, error: str = "") -> None:
        self.end, self.error = time.monotonic(), error
        if len(self.chunks) > 2:
            self.chunks = [_merged(self.chunks)]  # a chunk a token would be kept for as long as the state

    def traced(self, origin: float) -> TracedCall:
        now = self.end or time.monotonic()
        whole = _merged(self.chunks) if self.chunks else Chunk()
        fields: dict[str, Any] = {"appended": whole.appended, "texts": _begins(self.parts, whole.appended)}
        if isinstance(whole, ChoiceScores):
            fields |= {"scores": whole, "usage": whole.usage}
        else:
            fields |= {
                "text": whole.text,
                "reasoning": whole.reasoning,
                "answer": whole.answer,
                "tokens": whole.tokens,
                "finish": whole.finish,
                "usage": whole.usage or (whole.finish.usage if whole.finish else None),
            }
        if self.asked:
            fields["asked"], fields["appended"] = self.asked, "".join(map(_shown, self.asked))
        if self.told is not None:
            said = Said(role="assistant", content=self.told.text, calls=self.told.calls)
            fields |= {"told": self.told, "text": _content(said), "usage": self.told.usage}
            fields["reasoning"] = self.told.reasoning
        return TracedCall(
            kind=self.kind,
            state=self.state,
            name=self.name,
            where=str(self.where),
            start=self.start - origin,
            first=(self.first or now) - origin,
            end=now - origin,
            failed=bool(self.error),
            error=self.error,
            **fields,
        )


class Recording:
    """The calls of one state, in order. Filled on the backend's loop, and by agents with their tools'."""

    __slots__ = ("about", "calls", "forks", "path", "tools")

    def __init__(self) -> None:
        self.path = ""
        self.forks = 0
        self.calls: list[Open] = []
        self.tools: list[tuple[float, ToolResult]] = []
        self.about: dict[str, Any] = {}

    def begin(
        self,
        kind: Kind,
        name: str | None,
        where: Location,
        start: float,
        parts: Sequence[Part] = (),
        *,
        state: str | None = None,
    ) -> Open:
        call = Open(kind, name or "", where, self.path if state is None else state, start, parts)
        self.calls.append(call)
        return call

    def ask(self, name: str, where: Location, messages: Sequence[Said]) -> Open:
        """A turn of a conversation with tools begins; `messages` are new in it."""
        call = self.begin("gen", name, where, time.monotonic())
        call.asked = tuple(messages)
        return call

    def note(self, kind: Kind, where: Location, parts: Sequence[Part], appended: str, start: float) -> None:
        """A call that is over, and gave text alone."""
        call = self.begin(kind, None, where, start, parts)
        call.add(Chunk(appended=appended))
        call.close()

    def fork(self) -> str:
        """How the paths of the next fork's states begin; each has its number and "/" behind it."""
        self.forks += 1
        return f"{self.path}{self.forks}."

    def fail(self, error: str, kind: Kind | None, name: str | None, where: Location) -> None:
        """What runs has failed. `kind`: of the call that ran, which may have begun without giving anything."""
        running = [call for call in self.calls if not call.end]
        if not running and kind is not None:
            running = [self.begin(kind, name, where, time.monotonic())]
        for call in running:
            call.close(error)

    def ran(self, results: Sequence[ToolResult], end: float) -> None:
        """Tools of this state were run, and ended by `end` (of the monotonic clock)."""
        longest = max((result.seconds for result in results), default=0.0)
        self.tools += [(end - longest, result) for result in results]


def trace_of(state: Any) -> Trace:
    """What `state` and its forks have done so far; waits for what is under way."""
    recordings = list(_recordings(state))
    starts = [call.start for each in recordings for call in each.calls]
    starts += [start for each in recordings for start, _ in each.tools]
    origin = min(starts, default=time.monotonic())
    calls = [call.traced(origin) for each in recordings for call in list(each.calls)]
    calls += [_tool(start - origin, result, each.path) for each in recordings for start, result in each.tools]
    began = time.time() - (time.monotonic() - origin)  # seconds of the wall clock
    return Trace(calls, {**recordings[0].about, "began": round(began, 6)})


def _recordings(state: Any) -> Iterator[Recording]:
    if not state._interpreter.done.done():
        state.error()  # waits
    yield state._interpreter.gathered.recording
    for child in list(state._children):
        yield from _recordings(child)


def _tool(start: float, result: ToolResult, path: str) -> TracedCall:
    return TracedCall(
        kind="tool",
        state=path,
        name=result.call.name,
        start=start,
        first=start + result.seconds,
        end=start + result.seconds,
        text=result.text,
        arguments=result.call.arguments,
        value=_plain(result.value),
        failed=result.failed,
    )


def _begins(parts: Sequence[Part], appended: str) -> tuple[int, ...]:
    """Where the texts among `parts` begin in what these appended."""
    begins, at = [], 0
    for part in parts:
        if isinstance(part, Text) and (found := appended.find(part.text, at)) >= 0:
            begins.append(found)
            at = found + len(part.text)
    return tuple(begins)


def _shown(said: Said) -> str:
    """A message as people read it."""
    return f"{said.role}: {_content(said)}\n"


def _content(said: Said) -> str:
    lines = [said.content] if said.content else []
    return "\n".join([*lines, *(f"{call.name}({call.arguments})" for call in said.calls)])


def _plain(value: Any) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError):
        return None


def _merged(chunks: Sequence[Chunk | ChoiceScores]) -> Chunk | ChoiceScores:
    """A call's pieces as one."""
    last = chunks[-1]
    if len(chunks) == 1 or isinstance(last, ChoiceScores):
        return last
    pieces = [chunk for chunk in chunks if isinstance(chunk, Chunk)]
    logprobs = [entry for piece in pieces for entry in piece.logprobs or ()]
    return Chunk(
        text="".join([piece.text for piece in pieces]),
        reasoning="".join([piece.reasoning for piece in pieces]),
        answer="".join([piece.answer for piece in pieces]),
        tokens=b"".join([piece.tokens for piece in pieces]),
        logprobs=tuple(logprobs) or None,
        appended="".join([piece.appended for piece in pieces]),
        finish=last.finish,
        usage=last.usage,
    )
