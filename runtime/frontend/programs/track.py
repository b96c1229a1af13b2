"""One state of a running program: a branch, and the operations on it, one after another.

Values come through slots; what fails ends the track, and what it would have written is lost with the reason. Started by
run.py and by the track that divides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager

import msgspec

from palmette.runtime.errors import InternalError, InvalidRequest, PalmetteError
from palmette.runtime.frontend.branch import Branch
from palmette.runtime.frontend.programs.calls import ClientCalls
from palmette.runtime.frontend.programs.forecast import cost
from palmette.runtime.frontend.programs.outlook import Outlook
from palmette.runtime.frontend.programs.shared import Shared
from palmette.runtime.frontend.programs.slots import NOT_TAKEN, Lost
from palmette.runtime.frontend.timed import within
from palmette.runtime.messages.branches import (
    BeginRole,
    ChoiceScores,
    Chunk,
    EndRole,
    GenerateStep,
    Part,
    Text,
    Tokens,
)
from palmette.runtime.messages.programs import (
    Call,
    Choose,
    Divide,
    Finish,
    Insert,
    Join,
    Jump,
    Mark,
    Note,
    Operation,
    ProgramEvent,
    Settle,
    Value,
    Write,
    holds,
    reads,
    writes,
)
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import TOKEN_BYTES, count, pack


class Track:
    """`history`: what was appended since the track was started. `began`: tokens that it was started with."""

    def __init__(self, shared: Shared, number: int, branch: Branch, *, behind_space: bool) -> None:
        self.number = number
        self.branch = branch
        self.at = 0
        self.history: list[Part] = []
        self.began = branch.state.length
        self.away = False
        self.waits_for_tracks = False
        self.calls = ClientCalls(shared, number)
        self._shared = shared
        self._slots = shared.slots
        self._outlook = Outlook(shared, branch, first=number == 0)
        self._operations = shared.plan.tracks[number]
        self._pending: list[Part] = []
        self._behind_space = behind_space
        self._text: list[str] = []  # all of it, once something asks
        self._marks: dict[int, int] = {}
        self._children: list[int] = []

    async def run(self) -> None:
        try:
            while self.at < len(self._operations):
                self.at = await self._do(self._operations[self.at])
        except Lost as failure:
            self._fail(failure)
        except PalmetteError as error:
            self._fail(Lost(error, self.number, self.at))
        except Exception as error:  # the boundary of a track: the others go on
            self._fail(Lost(InternalError(f"{type(error).__name__}: {error}"), self.number, self.at))
        self._shared.ended(self)
        await self._outlook.ends(self._children)

    def _inherit(self, parent: Track) -> None:
        self._text = list(parent._text)
        self._outlook.inherit(parent._outlook)

    def _fail(self, failure: Lost) -> None:
        here = (self.number, self.at)
        origin = None if failure.origin == here else failure.origin
        self._emit(error=failure.error.info(), origin=origin)
        self._skip(self.at, len(self._operations), failure)

    def _skip(self, first: int, last: int, failure: Lost) -> None:
        """What operations would have written, and the tracks that they would have started, are not coming."""
        for operation in self._operations[first:last]:
            if not isinstance(operation, Settle) or not failure.not_taken:
                self._slots.lose(writes(operation), failure)
            if isinstance(operation, Divide):
                for child in operation.tracks:
                    self._shared.never(child, failure)

    async def _do(self, operation: Operation) -> int:
        """One operation; the number of the next."""
        await self._append(operation)
        match operation:
            case Write():
                async with within(operation.timeout), self._room(len(operation.params) * cost(operation)):
                    await self._write(operation)
            case Choose():
                async with within(operation.timeout), self._room(cost(operation)):
                    await self._choose(operation)
            case Divide(tracks=tracks):
                await self._divide(tracks)
            case Join(tracks=tracks):
                await self._join(tracks)
            case Mark(slot=slot):
                await self._flush()
                self._marks[slot] = len(self._text)
            case Note(slot=slot, since_mark=since):
                await self._flush()
                self._slots.fill(slot, "".join(self._text[self._marks.pop(slot, 0) if since else 0 :]))
            case Call():
                if not self.calls.begin(operation, self.at):
                    self._emit()
            case Settle():
                await self._settle(operation)
            case Jump():
                return self._jump(operation)
            case Finish():
                await self.calls.all_answered()
                await self._flush()
        return self.at + 1

    # Values

    async def _append(self, operation: Operation) -> None:
        """Wait for what the operation reads, and put its parts behind what is pending."""
        for part in operation.parts:
            if isinstance(part, Insert):
                await self._wait(part.value)
                text = str(self._slots.read(part.value))
                if text:
                    self._take(Text(text))
            else:
                self._take(part)
        if not isinstance(operation, Settle):  # whose sources may never come
            for value in reads(operation):
                await self._wait(value)

    def _take(self, part: Part) -> None:
        match part:
            case Text(text):
                self._behind_space = text[-1].isspace() if text else self._behind_space
            case BeginRole():
                self._behind_space = True
            case EndRole():
                self._behind_space = False
        self._pending.append(part)

    async def _wait(self, value: Value) -> None:
        slot = self._slots[value.slot]
        if slot.done():
            slot.result()
            return
        shared = self._shared
        ends = shared.forecast.ends
        now = max((ends.get((self.number, at), 0) for at in range(self.at)), default=0)
        await self._outlook.waits(value.slot, now, self._pending)
        called = shared.is_called(value.slot)
        patience = shared.engine.gate.patience
        away = called and shared.seconds_until(value.slot, now) > patience
        with self._resting(away=away, for_tracks=not called):
            if called and not away:
                await asyncio.wait([slot], timeout=patience)
                if not slot.done():  # the client's function takes longer than it was said to
                    self.away = True
                    shared.weigh()
            await asyncio.shield(slot)

    @contextmanager
    def _resting(self, *, away: bool = False, for_tracks: bool = False) -> Iterator[None]:
        """While it waits: for so long that its room in the pool is better given to others meanwhile, or for tracks."""
        self.away, self.waits_for_tracks = away, for_tracks
        self._shared.weigh()
        try:
            yield
        finally:
            self.away = self.waits_for_tracks = False
            self._shared.weigh()

    @asynccontextmanager
    async def _room(self, more: int) -> AsyncGenerator[None, None]:
        """For a verb that adds so many tokens, and those of what is pending."""
        shared, gate = self._shared, self._shared.engine.gate
        if self.branch.state.length:  # else it begins with what the program was let in with
            more += gate.tokens_of(sum(len(part.text) for part in self._pending if isinstance(part, Text)))
        if gate.stops(shared.claim, more):
            await self._outlook.stops()
        await gate.proceed(shared.claim, more)
        try:
            yield
        finally:
            gate.ended(shared.claim, more, shared.held)

    # Verbs

    async def _write(self, operation: Write) -> None:
        every = operation.spaced if operation.spaced and self._behind_space else operation.params
        parts, self._pending = tuple(self._pending), []
        self.history += parts
        step = GenerateStep(
            parts=parts,
            params=every[0],
            reasoning=operation.reasoning,
            priority=self._priority(operation),
            deadline=operation.timeout,
            reply_seconds=self._shared.request.reply_seconds,
        )
        self._behind_space = False
        if len(every) == 1:
            await self._output(self.branch, step, operation, 0)
            return
        forks, appended = await self.branch.fork_with_text(parts, len(every) - 1)
        self._grow(appended)
        self._emit(chunk=Chunk(appended=appended))
        step = msgspec.structs.replace(step, parts=())
        await self._outputs([self.branch, *forks], step, operation, every)

    async def _outputs(
        self, branches: list[Branch], step: GenerateStep, operation: Write, every: Sequence[SamplingParams]
    ) -> None:
        steps = [msgspec.structs.replace(step, params=params) for params in every]
        tasks = [
            asyncio.ensure_future(self._output(branch, each, operation, index))
            for index, (branch, each) in enumerate(zip(branches, steps, strict=True))
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for branch in branches[1:]:
                await branch.close()

    async def _output(self, branch: Branch, step: GenerateStep, operation: Write, index: int) -> None:
        text: list[str] = []
        thoughts: list[str] = []
        tokens = bytearray()
        clock = asyncio.get_running_loop().time
        begun = clock()
        async with aclosing(branch.run([step])) as chunks:
            async for _, chunk in chunks:
                assert isinstance(chunk, Chunk), "a generation gives chunks"
                text.append(chunk.text if operation.reasoning is None else chunk.answer)
                thoughts.append(chunk.reasoning)
                tokens += chunk.tokens
                if index == 0:
                    self._grow(chunk.appended)
                    self._grow(chunk.text)
                self._emit(chunk=chunk, output=index)
                if chunk.usage is not None:
                    self._learn(chunk.usage)
                if chunk.finish is not None and index == 0:
                    self._keep(bytes(tokens[: TOKEN_BYTES * chunk.finish.kept_tokens]), chunk.finish.kept_bytes)
        if tokens:
            self._shared.pace.measured(len(tokens) // TOKEN_BYTES, clock() - begun)
        self._slots.fill(operation.slots[index], "".join(text))
        if operation.thoughts:
            self._slots.fill(operation.thoughts[index], "".join(thoughts))

    def _learn(self, usage: Usage) -> None:
        """What the gate measures: how long a prefill takes, and how many characters make a token."""
        gate = self._shared.engine.gate
        gate.prefilled(usage.computed_tokens, usage.first_token_seconds - usage.queue_seconds)
        if self.number == 0 and not self._outlook.begun:
            gate.encoded(sum(len(part.text) for part in self.history if isinstance(part, Text)), usage.prompt_tokens)

    def _keep(self, tokens: bytes, tail: bytes) -> None:
        if tokens:
            self.history.append(Tokens(tokens))
        if tail:
            self.history.append(Text(tail.decode("utf-8", "replace")))
        self._outlook.verb_ended(count(tokens), goes_on=self._goes_on)

    @property
    def _goes_on(self) -> bool:
        """Whether another verb follows."""
        return any(isinstance(operation, Write | Choose | Divide) for operation in self._operations[self.at + 1 :])

    async def _choose(self, operation: Choose) -> None:
        parts, self._pending = tuple(self._pending), []
        self.history += parts
        step = operation.step(parts, self._priority(operation))
        async with aclosing(self.branch.run([step])) as results:
            async for _, scores in results:
                assert isinstance(scores, ChoiceScores), "a selection gives scores"
                assert scores.chosen is not None, "a method was named"
                self._grow(scores.appended)
                self._grow(operation.choices[scores.chosen])
                self.history.append(Tokens(pack(scores.tokens[scores.chosen])))
                self._emit(scores=scores)
                self._slots.fill(operation.slot, operation.choices[scores.chosen])
                self._outlook.verb_ended(len(scores.tokens[scores.chosen]), goes_on=self._goes_on)
        self._behind_space = False

    def _priority(self, operation: Write | Choose) -> int | None:
        """Its own; else, where that is wanted, what the whole program waits for goes before what runs beside it."""
        shared = self._shared
        critical = shared.request.critical_first and (self.number, self.at) in shared.forecast.critical
        if operation.priority is not None or not critical:
            return operation.priority
        return shared.scheduling.priority + 1

    # Tracks

    async def _divide(self, tracks: tuple[int, ...]) -> None:
        parts, self._pending = tuple(self._pending), []
        forks, appended = await self.branch.fork_with_text(parts, len(tracks))
        self.history += parts
        self._grow(appended)
        self._emit(chunk=Chunk(appended=appended))
        self._children += tracks
        self._outlook.divided()
        critical = {track for track, _ in self._shared.forecast.critical}
        pairs = sorted(zip(tracks, forks, strict=True), key=lambda pair: pair[0] not in critical)
        for number, branch in pairs:  # what the whole waits for is asked for first
            child = Track(self._shared, number, branch, behind_space=self._behind_space)
            child._inherit(self)
            self._shared.start(child)

    async def _join(self, tracks: tuple[int, ...]) -> None:
        with self._resting(for_tracks=True):
            for number in tracks:
                await self._shared.over[number].wait()
        for number in tracks:
            track = self._shared.tracks[number]
            assert isinstance(track, Track)
            self._pending += track.history
        self._emit()

    # Flow

    async def _settle(self, operation: Settle) -> None:
        for target, source in zip(operation.targets, operation.sources, strict=True):
            try:
                if isinstance(source, Value):
                    await self._wait(source)
                    source = self._slots.read(source)
                elif source is None:
                    raise Lost(NOT_TAKEN, self.number, self.at)
                self._slots.fill(target, str(source))
            except Lost as failure:  # a branch within the one that was taken, which was not
                if not failure.not_taken:
                    raise
                self._slots.lose((target,), failure)
        self._emit()

    def _jump(self, operation: Jump) -> int:
        self._emit()
        if operation.condition is not None:
            try:
                truth = holds(operation.condition, self._slots.read)
            except TypeError as error:
                raise InvalidRequest(f"The condition can't be decided: {error}.") from None
            if truth != operation.where:
                return self.at + 1
        self._skip(self.at + 1, operation.target, Lost(NOT_TAKEN, self.number, self.at))
        return operation.target

    # Text

    async def _flush(self) -> None:
        """Append what is pending, so that its text is known."""
        parts, self._pending = tuple(self._pending), []
        self.history += parts
        appended = await self.branch.extend(parts) if parts else ""
        self._grow(appended)
        self._emit(chunk=Chunk(appended=appended))

    def _grow(self, text: str) -> None:
        if text:
            self._text.append(text)

    def _emit(self, **what: object) -> None:
        event = ProgramEvent(track=self.number, operation=self.at, **what)  # type: ignore[arg-type]
        self._shared.tell(event)
