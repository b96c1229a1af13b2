"""A branch: the state of one program, and the verbs that change it. Meets `lang`'s BackendBranch without knowing it.

Its token ids live here, in the front, so an engine that was restarted recomputes them and the branch lives on.
Verbs run one after another; a verb that fails leaves the branch as it was. Opened by Frontend.open_branch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec

from palmette.runtime.errors import Aborted, BranchLost, InvalidRequest, PalmetteError
from palmette.runtime.frontend.generation import Generation
from palmette.runtime.frontend.scores import Scores
from palmette.runtime.frontend.state import BranchState, StateEditor
from palmette.runtime.frontend.thinking import ThinkingSplitter
from palmette.runtime.messages.branches import (
    ChoiceScores,
    Chunk,
    ExtendStep,
    GenerateStep,
    Part,
    ScoreStep,
    Step,
    Tokens,
)
from palmette.runtime.messages.choices import DECIDE
from palmette.runtime.messages.hints import BranchHint, Hint
from palmette.runtime.messages.requests import Scheduling
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack

MOST_FORKS = 1024


class BranchEngine(Protocol):
    """What a branch needs of the frontend."""

    @property
    def editor(self) -> StateEditor: ...

    async def append(self, state: BranchState, parts: Sequence[Part], *, encode: bool) -> tuple[BranchState, str]: ...

    def submit_packed(
        self,
        prompt: bytes,
        params: SamplingParams,
        *,
        namespace: str = "",
        first_output_index: int = 0,
        scheduling: Scheduling = Scheduling(),
        spelled: Mapping[int, bytes] | None = None,
        reply_seconds: float = 0.0,
    ) -> Generation: ...

    @property
    def scores(self) -> Scores: ...

    def hint(self, hint: Hint) -> None: ...


class Branch:
    """See lang/backends/base.py for the verbs. After `close` each of them raises BranchLost."""

    def __init__(
        self,
        engine: BranchEngine,
        *,
        namespace: str = "",
        scheduling: Scheduling = Scheduling(),
        state: BranchState | None = None,
    ) -> None:
        self._engine = engine
        self._scheduling = scheduling
        self._namespace = namespace
        self._state = BranchState() if state is None else state
        self._turn = asyncio.Lock()
        self._running: asyncio.Future[ChoiceScores] | Generation | None = None
        self._closed = False

    @property
    def state(self) -> BranchState:
        return self._state

    @property
    def busy(self) -> bool:
        """Whether a verb runs."""
        return self._turn.locked()

    async def extend(self, parts: Sequence[Part]) -> str:
        """Append `parts`; returns the text they added, template text included."""
        async with self._turn:
            self._check_open()
            self._state, appended = await self._engine.append(self._state, parts, encode=False)
            return appended

    async def previewed(self, parts: Sequence[Part], *, encode: bool = False) -> BranchState:
        """The state as `parts` would make it, `encode`: with nothing pending; the branch stays as it is."""
        async with self._turn:
            self._check_open()
            return (await self._engine.append(self._state, parts, encode=encode))[0]

    async def run(
        self, steps: Sequence[Step], *, last: bool = False
    ) -> AsyncGenerator[tuple[int, Chunk | ChoiceScores], None]:
        """Do `steps` one after another; what each gives comes with its number. `last`: then close.

        Closing the iterator aborts the step that runs; an error leaves the branch as it was before its step.
        """
        try:
            for number, step in enumerate(steps):
                match step:
                    case GenerateStep():
                        chunks = self._generate(step, self._wanted(step))
                        async with aclosing(chunks):
                            async for chunk in chunks:
                                yield number, chunk
                    case ScoreStep():
                        yield number, await self._choose(step)
                    case ExtendStep(parts=parts):
                        yield number, Chunk(appended=await self.extend(parts))
        finally:
            if last:
                await self.close()

    def generate(
        self, parts: Sequence[Part], params: SamplingParams, *, return_text: bool = True
    ) -> AsyncGenerator[Chunk, None]:
        """Append `parts`, then generate. The branch keeps the kept tokens.

        Closing the iterator aborts and keeps what was handed out; an error leaves the branch as it was before.
        """
        return self._generate(
            GenerateStep(parts=tuple(parts), params=params), self._scheduling, return_text=return_text
        )

    async def _generate(
        self, step: GenerateStep, scheduling: Scheduling, *, return_text: bool = True
    ) -> AsyncGenerator[Chunk, None]:
        async with self._turn:
            self._check_open()
            state, appended = await self._engine.append(self._state, step.parts, encode=True)
            splitter = None if step.reasoning is None else self._engine.editor.splitter(state, step.reasoning)
            generation = self._engine.submit_packed(
                state.tokens,
                step.params,
                namespace=self._namespace,
                first_output_index=state.output_index,
                scheduling=scheduling,
                spelled=None if splitter is None else self._engine.editor.spelled(splitter.marks),
                reply_seconds=step.reply_seconds,
            )
            self._running = generation
            kept = False
            try:
                async for chunk in generation:
                    if chunk.finish is not None:
                        self._keep(state, generation)
                        kept = True
                    yield _shown(chunk, appended, splitter, return_text)
                    appended = ""
            except PalmetteError:
                kept = True  # nothing
                raise
            finally:
                self._running = None
                generation.close()
                if not kept:
                    self._keep(state, generation)

    async def score(
        self,
        parts: Sequence[Part],
        choices: Sequence[str],
        *,
        unconditional: bool = False,
        scheduling: Scheduling | None = None,
    ) -> ChoiceScores:
        """Append `parts`, then score each choice as a continuation. Nothing else is appended."""
        async with self._turn:
            self._check_open()
            state, appended = await self._engine.append(self._state, parts, encode=True)
            work = asyncio.ensure_future(
                self._engine.scores.score_packed(
                    state.tokens,
                    choices,
                    namespace=self._namespace,
                    unconditional=unconditional,
                    scheduling=scheduling or self._scheduling,
                )
            )
            self._running = work
            try:
                scores = await work
            except asyncio.CancelledError:
                if self._closed:
                    raise Aborted("The branch was closed while it scored.") from None
                raise
            finally:
                self._running = None
                work.cancel()
            self._state = state
            return msgspec.structs.replace(scores, appended=appended)

    async def _choose(self, step: ScoreStep) -> ChoiceScores:
        unconditional = step.unconditional or step.method == "unconditional_likelihood_normalized"
        scores = await self.score(step.parts, step.choices, unconditional=unconditional, scheduling=self._wanted(step))
        if step.method is None:
            return scores
        chosen = DECIDE[step.method](scores)
        await self.extend([Tokens(pack(scores.tokens[chosen]))])
        return msgspec.structs.replace(scores, chosen=chosen)

    async def fork(self, parts: Sequence[Part], count: int) -> list[Branch]:
        """Append `parts`, encode what is pending, and return `count` branches that start from here."""
        forks, _ = await self.fork_with_text(parts, count)
        return forks

    async def fork_with_text(self, parts: Sequence[Part], count: int) -> tuple[list[Branch], str]:
        """`fork`, with the text that the parts added."""
        if not 1 <= count <= MOST_FORKS:
            raise InvalidRequest(f"count={count!r} is not a number of branches from 1 to {MOST_FORKS}.", param="count")
        async with self._turn:
            self._check_open()
            self._state, appended = await self._engine.append(self._state, parts, encode=True)
            forks = [
                Branch(self._engine, namespace=self._namespace, scheduling=self._scheduling, state=self._state)
                for _ in range(count)
            ]
            return forks, appended

    async def truncate(self, position: int) -> None:
        """Keep the first `position` tokens."""
        async with self._turn:
            self._check_open()
            self._state = self._engine.editor.truncated(self._state, position)

    async def hint(self, hint: BranchHint) -> None:
        """Tell the cache what is known of this branch's future, once the verbs before it have ended."""
        async with self._turn:
            self._check_open()
            if self._state.tokens:
                self._engine.hint(hint.of(self._state.tokens, self._namespace))

    async def close(self) -> None:
        """Release the branch; a running verb raises Aborted. Idempotent."""
        self._closed = True
        if isinstance(self._running, Generation):
            self._running.close()
        elif self._running is not None:
            self._running.cancel()
        self._state = BranchState()

    def drop(self) -> bool:
        """`close` where no verb runs, from any thread; nothing has to be waited for."""
        self._closed = True
        self._state = BranchState()
        return True

    def _wanted(self, step: GenerateStep | ScoreStep) -> Scheduling:
        """How soon the step is wanted: as it says, else as the branch's verbs are."""
        own = {
            name: value
            for name, value in (("priority", step.priority), ("deadline", step.deadline))
            if value is not None
        }
        return msgspec.structs.replace(self._scheduling, **own) if own else self._scheduling

    def _keep(self, state: BranchState, generation: Generation) -> None:
        """The branch's state is `state` and what `generation` has handed out."""
        if not self._closed:
            tokens, tail = generation.output.handed_out()
            self._state = self._engine.editor.generated(state, tokens, tail, generation.output.received)

    def _check_open(self) -> None:
        if self._closed:
            raise BranchLost("The branch is closed.", hint="Open a new one and append its history.")


def _shown(chunk: Chunk, appended: str, splitter: ThinkingSplitter | None, return_text: bool) -> Chunk:
    """A generation's chunk as the branch hands it out."""
    if splitter is not None:
        thought, answer = splitter.push(chunk.text, ended=chunk.finish is not None)
        chunk = msgspec.structs.replace(chunk, reasoning=thought, answer=answer)
    if return_text and not appended:
        return chunk
    return msgspec.structs.replace(chunk, text=chunk.text if return_text else "", appended=appended)
