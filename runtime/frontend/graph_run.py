"""Runs a compiled program beside the frontend: its tracks as branches, side by side, in the order that its plan gives.

What a track appends waits for the values in it only where it stands; what two tracks don't need of each other runs at
once. Since the plan says what comes, the engine is told: which path is used again and when, which never again, which
waits for a client's function; and a prompt whose end isn't known yet is computed as far as it is. None of that
changes a token. Made by Frontend.run_program; knows no HTTP and no scheduler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from palmette.runtime.errors import InternalError, InvalidRequest, PalmetteError
from palmette.runtime.frontend.branch import Branch
from palmette.runtime.frontend.forecast import forecast
from palmette.runtime.frontend.generation import Generation
from palmette.runtime.frontend.state import BranchState
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
from palmette.runtime.messages.hints import BranchHint, Hint
from palmette.runtime.messages.programs import (
    Call,
    CallResult,
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
    RunProgram,
    Scalar,
    Settle,
    Value,
    Write,
    holds,
    reads,
    resolved,
    writes,
)
from palmette.runtime.messages.requests import Scheduling
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import TOKEN_BYTES, count, pack

TOKEN_SECONDS = 0.02  # until something has been measured
AHEAD = 32  # tokens that are worth a request of their own before they are needed
SOON_SECONDS = 0.25  # at least, to the next verb of a branch that waits for nothing: it may have to queue
SOON_TOKENS = 20  # likewise, in the time that a token takes
TOOL_SECONDS = 30.0  # that a client's function may take, where it doesn't say
MARGIN = 1.5  # by which a forecast may be too early
NOT_TAKEN = InvalidRequest("This was not written: the branch that writes it was not taken.")


class ProgramEngine(Protocol):
    """What a run needs of the frontend."""

    async def open_branch(self, namespace: str = "", scheduling: Scheduling = Scheduling()) -> Branch: ...

    def hint(self, hint: Hint) -> None: ...

    def submit_packed(
        self, prompt: bytes, params: SamplingParams, *, namespace: str = "", scheduling: Scheduling = Scheduling()
    ) -> Generation: ...


class _Failed(Exception):
    """A value that isn't coming: what failed, and where."""

    def __init__(self, error: PalmetteError, track: int, operation: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.origin = (track, operation)


class GraphRun:
    """One run of a plan, which has been checked (messages/programs.py)."""

    def __init__(self, engine: ProgramEngine, request: RunProgram, scheduling: Scheduling = Scheduling()) -> None:
        self.engine = engine
        self.request = request
        self.plan = request.plan
        self.scheduling = scheduling
        self.forecast = forecast(request.plan)
        self.started = time.monotonic()
        self.slots: dict[int, asyncio.Future[str]] = {}
        self.tracks: dict[int, _Track] = {}
        self.over = [asyncio.Event() for _ in self.plan.tracks]  # its operations are done
        self.quiet = [asyncio.Event() for _ in self.plan.tracks]  # and those of all that it started
        self.calls = {
            operation.slot: operation
            for operations in self.plan.tracks
            for operation in operations
            if isinstance(operation, Call)
        }
        self._events: asyncio.Queue[ProgramEvent | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._beside: set[asyncio.Task[None]] = set()
        self._tokens = 0
        self._seconds = 0.0

    async def events(self) -> AsyncGenerator[ProgramEvent, None]:
        """What the run gives, to the end. Closing the iterator aborts everything."""
        try:
            branch = await self.engine.open_branch(self.request.namespace, self.scheduling)
            self.start(_Track(self, 0, branch, behind_space=True))
            while (event := await self._events.get()) is not None:
                yield event
            yield ProgramEvent(over=True)
        finally:
            tasks = [*self._tasks, *self._beside]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for track in self.tracks.values():
                await track.branch.close()

    async def answer(self, result: CallResult) -> None:
        """What the client's function gave. Raises InvalidRequest for one that wasn't asked for."""
        place = (result.track, result.operation)
        track = self.tracks.get(result.track)
        slot = None if track is None else track.asked(result.operation)
        if slot is None:
            raise InvalidRequest(f"Operation {result.operation!r} of track {result.track!r} asked for nothing.")
        if result.error is not None:
            self.lose((slot,), _Failed(InvalidRequest(f"The program's function failed: {result.error}"), *place))
        else:
            self.fill(slot, result.text)

    # For the tracks

    def start(self, track: _Track) -> None:
        self.tracks[track.number] = track
        task = asyncio.get_running_loop().create_task(track.run())
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(track, done))

    def _ended(self, track: _Track, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.over[track.number].set()
        self.quiet[track.number].set()
        if not self._tasks:
            self._events.put_nowait(None)

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that nobody waits for; its failure is nobody's either."""
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)

        def ended(done: asyncio.Task[None]) -> None:
            self._beside.discard(done)
            if not done.cancelled():
                done.exception()

        task.add_done_callback(ended)

    def never(self, track: int, failure: _Failed) -> None:
        """A track is not going to be started."""
        if track in self.tracks:
            return
        self.over[track].set()
        self.quiet[track].set()
        for operation in self.plan.tracks[track]:
            self.lose(writes(operation), failure)
            if isinstance(operation, Divide):
                for child in operation.tracks:
                    self.never(child, failure)

    def emit(self, event: ProgramEvent) -> None:
        self._events.put_nowait(event)

    def slot(self, number: int) -> asyncio.Future[str]:
        if number not in self.slots:
            self.slots[number] = asyncio.get_running_loop().create_future()
        return self.slots[number]

    def fill(self, number: int, text: str) -> None:
        if not self.slot(number).done():
            self.slots[number].set_result(text)

    def lose(self, slots: Iterable[int], failure: _Failed) -> None:
        """These slots get no value any more."""
        for number in slots:
            slot = self.slot(number)
            if not slot.done():
                slot.set_exception(failure)
                slot.exception()  # nobody has to ask

    def read(self, value: Value) -> Scalar:
        """A value that is there. Raises InvalidRequest where its text is no such thing."""
        text = self.slot(value.slot).result()
        try:
            return resolved(value, text)
        except ValueError as error:
            raise InvalidRequest(f"{text!r:.80} is no {value.changes[-1]}: {error}.") from None

    def measured(self, tokens: int, seconds: float) -> None:
        self._tokens += tokens
        self._seconds += seconds

    def seconds_until(self, slot: int, now: int) -> float:
        """How long it is until a slot is there, as far as can be told; `now`: in tokens."""
        call = self.calls.get(slot)
        if call is not None:
            return MARGIN * (TOOL_SECONDS if call.seconds is None else call.seconds)
        return max(0.0, self.forecast.ready.get(slot, now) - now) * self._token_seconds * MARGIN

    @property
    def soon(self) -> float:
        """Seconds to the next verb of a branch that waits for nothing."""
        return max(SOON_SECONDS, SOON_TOKENS * self._token_seconds)

    @property
    def _token_seconds(self) -> float:
        return self._seconds / self._tokens if self._tokens else TOKEN_SECONDS


class _Track:
    """One state of the program: a branch, and the operations on it."""

    def __init__(self, run: GraphRun, number: int, branch: Branch, *, behind_space: bool) -> None:
        self.number = number
        self.branch = branch
        self.at = 0
        self.history: list[Part] = []  # since the track was started
        self._run = run
        self._operations = run.plan.tracks[number]
        self._pending: list[Part] = []
        self._behind_space = behind_space
        self._text: list[str] = []  # all of it, once something asks
        self._marks: dict[int, int] = {}
        self._asked: dict[int, int] = {}  # operations to slots
        self._called: list[int] = []
        self._ends: list[int] = []  # lengths at which verbs have ended, in tokens
        self._prompt: int | None = None  # tokens before the first verb's own
        self._children: list[int] = []
        self._computed = 0  # tokens of the branch that the engine has seen

    async def run(self) -> None:
        try:
            while self.at < len(self._operations):
                self.at = await self._do(self._operations[self.at])
        except _Failed as failure:
            self._fail(failure)
        except PalmetteError as error:
            self._fail(_Failed(error, self.number, self.at))
        except Exception as error:  # the boundary of a track: the others go on
            self._fail(_Failed(InternalError(f"{type(error).__name__}: {error}"), self.number, self.at))
        self._run.over[self.number].set()
        await self._hint_end()

    def asked(self, operation: int) -> int | None:
        """The slot that the client was asked for by this operation, once; None where it wasn't."""
        return self._asked.pop(operation, None)

    def inherit(self, parent: _Track) -> None:
        self._text = list(parent._text)
        self._computed = parent._computed

    def _fail(self, failure: _Failed) -> None:
        here = (self.number, self.at)
        origin = None if failure.origin == here else failure.origin
        self._emit(error=failure.error.info(), origin=origin)
        self._skip(self.at, len(self._operations), failure)

    def _skip(self, first: int, last: int, failure: _Failed) -> None:
        """What operations would have written, and the tracks that they would have started, are not coming."""
        for operation in self._operations[first:last]:
            if not isinstance(operation, Settle) or failure.error is not NOT_TAKEN:
                self._run.lose(writes(operation), failure)
            if isinstance(operation, Divide):
                for child in operation.tracks:
                    self._run.never(child, failure)

    async def _hint_end(self) -> None:
        """The branch isn't extended any more; where nobody goes on from it, the cache hears that."""
        if self.number == 0 and self._run.request.returns:
            return
        for child in self._children:
            await self._run.quiet[child].wait()
        tokens, prompt = self.branch.state.tokens, self._prompt or 0
        if self.number == 0 and not prompt:
            return
        lengths = {length for length in (*self._ends, count(tokens)) if length > prompt or self.number > 0}
        for length in sorted(lengths - {0}, reverse=True):
            # The deepest first: a hint about a path says of what is above its end that others may share it.
            self._hint(tokens, length, BranchHint(last_use=True))
        if self.number == 0 and lengths:  # what the program began with may be what others begin with
            self._hint(tokens, prompt, BranchHint(last_use=True))  # which makes it a node of its own
            self._hint(tokens, prompt, BranchHint(next_use_seconds=0.0))

    def _hint(self, tokens: bytes, length: int, hint: BranchHint) -> None:
        self._run.engine.hint(hint.of(tokens[: length * TOKEN_BYTES], self._run.request.namespace))

    def _verb_ended(self, own: int = 0) -> None:
        """The engine has computed the branch so far, and holds it as a path that ends here; `own`: tokens of it that
        the verb added."""
        length = self.branch.state.length
        if self._ends and length < self._ends[-1]:
            self._ends.clear()  # a template has written earlier turns anew
        if self._prompt is None:
            self._prompt = length - own
        self._ends.append(length)
        self._computed = length
        if any(isinstance(operation, Write | Choose | Divide) for operation in self._operations[self.at + 1 :]):
            self._hint(self.branch.state.tokens, length, BranchHint(next_use_seconds=self._run.soon))

    async def _do(self, operation: Operation) -> int:
        """One operation; the number of the next."""
        await self._append(operation)
        match operation:
            case Write():
                await self._write(operation)
            case Choose():
                async with within(operation.timeout):
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
                self._run.fill(slot, "".join(self._text[self._marks.pop(slot, 0) if since else 0 :]))
            case Call():
                self._call(operation)
            case Settle():
                await self._settle(operation)
            case Jump():
                return self._jump(operation)
            case Finish():
                for slot in self._called:
                    await asyncio.shield(self._run.slot(slot))
                await self._flush()
        return self.at + 1

    # Values

    async def _append(self, operation: Operation) -> None:
        """Wait for what the operation reads, and put its parts behind what is pending."""
        for part in operation.parts:
            if isinstance(part, Insert):
                await self._wait(part.value)
                text = str(self._run.read(part.value))
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
        slot = self._run.slot(value.slot)
        if not slot.done():
            await self._while_waiting(value.slot)
        await asyncio.shield(slot)

    async def _while_waiting(self, slot: int) -> None:
        """Tell the cache when this path is needed again, and compute ahead what is certain of it."""
        run = self._run
        now = max((run.forecast.ends.get((self.number, at), 0) for at in range(self.at)), default=0)
        seconds = run.soon + run.seconds_until(slot, now)
        waits = BranchHint(tool_wait_seconds=seconds) if slot in run.calls else BranchHint(next_use_seconds=seconds)
        await self.branch.hint(waits)
        ahead = await self._certain()
        if ahead is not None:
            self._computed = ahead.length
            run.beside(self._prefill(ahead))

    async def _certain(self) -> BranchState | None:
        """The state with what is pending, as far as nothing that comes can change its tokens: to the last turn."""
        turns = [at for at, part in enumerate(self._pending) if isinstance(part, BeginRole | EndRole)]
        state = self.branch.state
        if turns:
            state = await self.branch.previewed(self._pending[: turns[-1] + 1])
        return state if state.length - self._computed >= AHEAD else None

    async def _prefill(self, state: BranchState) -> None:
        params = SamplingParams(max_tokens=0)
        generation = self._run.engine.submit_packed(
            state.tokens, params, namespace=self._run.request.namespace, scheduling=self._run.scheduling
        )
        async with aclosing(generation):
            async for _ in generation:
                pass

    # Operations

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
        )
        self._behind_space = False
        async with within(operation.timeout):
            if len(every) == 1:
                await self._output(self.branch, step, operation, 0)
                return
            forks, appended = await self.branch.fork_with_text(parts, len(every) - 1)
            self._grow(appended)
            self._emit(chunk=Chunk(appended=appended))
            step = msgspec.structs.replace(step, parts=())
            await self._outputs([self.branch, *forks], step, operation, every)

    async def _outputs(
        self, branches: list[Branch], step: GenerateStep, operation: Write, every: tuple[SamplingParams, ...]
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
        begun = time.monotonic()
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
                if chunk.finish is not None and index == 0:
                    self._keep(bytes(tokens[: TOKEN_BYTES * chunk.finish.kept_tokens]), chunk.finish.kept_bytes)
        if tokens:
            self._run.measured(len(tokens) // TOKEN_BYTES, time.monotonic() - begun)
        self._run.fill(operation.slots[index], "".join(text))
        if operation.thoughts:
            self._run.fill(operation.thoughts[index], "".join(thoughts))

    def _keep(self, tokens: bytes, tail: bytes) -> None:
        if tokens:
            self.history.append(Tokens(tokens))
        if tail:
            self.history.append(Text(tail.decode("utf-8", "replace")))
        self._verb_ended(count(tokens))

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
                self._run.fill(operation.slot, operation.choices[scores.chosen])
                self._verb_ended(len(scores.tokens[scores.chosen]))
        self._behind_space = False

    async def _divide(self, tracks: tuple[int, ...]) -> None:
        parts, self._pending = tuple(self._pending), []
        forks, appended = await self.branch.fork_with_text(parts, len(tracks))
        self.history += parts
        self._grow(appended)
        self._emit(chunk=Chunk(appended=appended))
        self._children += tracks
        if self._prompt is None:
            self._prompt = self.branch.state.length
        self._ends.append(self.branch.state.length)
        self._computed = self.branch.state.length  # by the tracks that start here
        critical = {track for track, _ in self._run.forecast.critical}
        pairs = sorted(zip(tracks, forks, strict=True), key=lambda pair: pair[0] not in critical)
        for number, branch in pairs:  # what the whole waits for is asked for first
            child = _Track(self._run, number, branch, behind_space=self._behind_space)
            child.inherit(self)
            self._run.start(child)

    async def _join(self, tracks: tuple[int, ...]) -> None:
        for number in tracks:
            await self._run.over[number].wait()
        for number in tracks:
            self._pending += self._run.tracks[number].history
        self._emit()

    def _call(self, operation: Call) -> None:
        self._emit()
        self._called.append(operation.slot)
        self._run.beside(self._asking(operation, self.at))

    async def _asking(self, operation: Call, at: int) -> None:
        """Ask the client once the arguments are there; the track goes on meanwhile."""
        run = self._run
        try:
            for value in operation.arguments:
                if isinstance(value, Value):
                    await asyncio.shield(run.slot(value.slot))
            arguments = tuple(run.read(each) if isinstance(each, Value) else each for each in operation.arguments)
        except _Failed as failure:
            run.lose((operation.slot,), failure)
            return
        except PalmetteError as error:
            run.lose((operation.slot,), _Failed(error, self.number, at))
            return
        self._asked[at] = operation.slot
        run.emit(ProgramEvent(track=self.number, operation=at, arguments=arguments))

    async def _settle(self, operation: Settle) -> None:
        for target, source in zip(operation.targets, operation.sources, strict=True):
            try:
                if isinstance(source, Value):
                    await self._wait(source)
                    source = self._run.read(source)
                elif source is None:
                    raise _Failed(NOT_TAKEN, self.number, self.at)
                self._run.fill(target, str(source))
            except _Failed as failure:  # a branch within the one that was taken, which was not
                if failure.error is not NOT_TAKEN:
                    raise
                self._run.lose((target,), failure)
        self._emit()

    def _jump(self, operation: Jump) -> int:
        self._emit()
        if operation.condition is not None:
            try:
                truth = holds(operation.condition, self._run.read)
            except TypeError as error:
                raise InvalidRequest(f"The condition can't be decided: {error}.") from None
            if truth != operation.where:
                return self.at + 1
        self._skip(self.at + 1, operation.target, _Failed(NOT_TAKEN, self.number, self.at))
        return operation.target

    async def _flush(self) -> None:
        """Append what is pending, so that its text is known."""
        parts, self._pending = tuple(self._pending), []
        self.history += parts
        appended = await self.branch.extend(parts) if parts else ""
        self._grow(appended)
        self._emit(chunk=Chunk(appended=appended))

    def _priority(self, operation: Write | Choose) -> int | None:
        """Its own; else, where that is wanted, what the whole program waits for goes before what runs beside it."""
        critical = self._run.request.critical_first and (self.number, self.at) in self._run.forecast.critical
        if operation.priority is not None or not critical:
            return operation.priority
        return self._run.scheduling.priority + 1

    def _grow(self, text: str) -> None:
        if text:
            self._text.append(text)

    def _emit(self, **what: object) -> None:
        self._run.emit(ProgramEvent(track=self.number, operation=self.at, **what))  # type: ignore[arg-type]
