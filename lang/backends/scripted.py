"""A backend without a model: answers come from a function or a list. For tests, and for trying a program's flow.

Token ids are UTF-8 bytes, so every id can be checked by eye. Honours max_tokens and stops (strings, patterns, token
ids); the template is `<role>…</role>`, reasoning stands between <think> and </think>.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from palmette.lang.backends.base import BackendBranch, Result
from palmette.lang.loop import language_loop
from palmette.runtime.errors import BranchLost, InvalidRequest
from palmette.runtime.messages.branches import (
    BeginRole,
    ChoiceScores,
    Chunk,
    EndRole,
    ExtendStep,
    GenerateStep,
    Part,
    ScoreStep,
    Step,
    Text,
    Tokens,
)
from palmette.runtime.messages.choices import DECIDE
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.replies import Finish, FinishReason, TokenLogprob, Usage
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack, unpack

Answer = str | Awaitable[str]
Score = Callable[[str, str], float]


class ScriptedBackend:
    """A backend without a model, for tests and for trying a program's flow.

    `answers(prompt)` gives each answer; a list is used up in order of the calls. It may raise, or be a coroutine
    function. `score(prompt, choice)` gives a choice's log-probability a token (default: the first choice is best).

    `calls` records every verb with what it was given; `open_branches` counts those not closed.
    """

    name = "scripted"

    def __init__(
        self,
        answers: Callable[[str], Answer] | Sequence[str] = (),
        *,
        score: Score | None = None,
        chunk_bytes: int = 4,
    ) -> None:
        self._answers = answers if callable(answers) else _in_order(list(answers))
        self.score = score
        self.chunk_bytes = chunk_bytes
        self.calls: list[tuple[str, Any]] = []
        self.open_branches = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return language_loop()

    async def answer(self, prompt: str) -> str:
        given = self._answers(prompt)
        return await given if inspect.isawaitable(given) else given

    async def open(self, *, namespace: str = "") -> BackendBranch:
        self.calls.append(("open", namespace))
        return ScriptedBranch(self, b"")

    async def flush_cache(self) -> int:
        self.calls.append(("flush_cache", None))
        return 0

    async def close(self) -> None:
        """Nothing to release."""


class ScriptedBranch:
    def __init__(self, backend: ScriptedBackend, held: bytes) -> None:
        self.backend = backend
        self.held = held
        self.lost = False
        self.closed = False
        backend.open_branches += 1

    async def run(self, steps: Sequence[Step], *, last: bool = False) -> AsyncGenerator[tuple[int, Result], None]:
        try:
            for number, step in enumerate(steps):
                match step:
                    case GenerateStep():
                        async with aclosing(self._generate(step)) as chunks:
                            async for chunk in chunks:
                                yield number, chunk
                    case ScoreStep():
                        yield number, self._score(step)
                    case ExtendStep(parts=parts):
                        self._called("extend", list(parts))
                        yield number, Chunk(appended=self._append(parts))
        finally:
            if last:
                await self.close()

    async def _generate(self, step: GenerateStep) -> AsyncGenerator[Chunk, None]:
        self._called("generate", (list(step.parts), step.params))
        before, params = self.held, step.params
        appended = self._append(step.parts)
        prompt = len(self.held)
        try:
            answer = (await self.backend.answer(self.held.decode(errors="replace"))).encode()
        except BaseException:
            self.held = before  # a verb that fails leaves the branch as it was
            raise
        kept, reason, matched = _stopped(answer, params)
        thought, rest = _thinking(kept)
        yield Chunk(appended=appended)
        for start in range(0, len(kept), self.backend.chunk_bytes):
            piece = kept[start : start + self.backend.chunk_bytes]
            await asyncio.sleep(0)
            self.held += piece
            logprobs = tuple(TokenLogprob(byte, -1.0) for byte in piece) if params.logprobs else None
            yield Chunk(text=piece.decode(errors="replace"), tokens=pack(list(piece)), logprobs=logprobs)
        usage = Usage(prompt_tokens=prompt, completion_tokens=len(kept), computed_tokens=prompt)
        finish = Finish(reason=reason, usage=usage, kept_tokens=len(kept), matched=matched)
        if step.reasoning is None:
            yield Chunk(finish=finish, usage=usage)
        else:
            yield Chunk(finish=finish, usage=usage, reasoning=thought.decode(), answer=rest.decode())

    def _score(self, step: ScoreStep) -> ChoiceScores:
        choices = step.choices
        self._called("score", (list(step.parts), choices))
        appended = self._append(step.parts)
        prompt = self.held.decode(errors="replace")
        tokens = tuple(tuple(choice.encode()) for choice in choices)
        scores = ChoiceScores(
            tokens=tokens,
            token_texts=tuple(tuple(chr(byte) for byte in row) for row in tokens),
            logprobs=self._logprobs(prompt, choices),
            unconditional=self._logprobs("", choices) if step.unconditional else None,
            usage=Usage(prompt_tokens=len(self.held), computed_tokens=len(self.held)),
            appended=appended,
        )
        if step.method is None:
            return scores
        chosen = DECIDE[step.method](scores)
        self.held += choices[chosen].encode()
        return msgspec.structs.replace(scores, chosen=chosen)

    async def fork(self, parts: Sequence[Part], count: int) -> list[BackendBranch]:
        self._called("fork", (list(parts), count))
        self._append(parts)
        return [ScriptedBranch(self.backend, self.held) for _ in range(count)]

    async def hint(self, hint: BranchHint) -> None:
        self._called("hint", hint)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.backend.open_branches -= 1
            self.backend.calls.append(("close", self.held))

    def drop(self) -> bool:
        return False  # the backend counts its branches, on its loop

    def _called(self, verb: str, what: Any) -> None:
        self.backend.calls.append((verb, what))
        if self.lost or self.closed:
            raise BranchLost("The scripted branch is gone.", hint="Open it again.")

    def _append(self, parts: Sequence[Part]) -> str:
        added = b"".join(_part_bytes(part) for part in parts)
        self.held += added
        return added.decode(errors="replace")

    def _logprobs(self, prompt: str, choices: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """The same log-probability for every token of a choice."""
        score = self.backend.score
        each = [-1.0 - index if score is None else score(prompt, choice) for index, choice in enumerate(choices)]
        return tuple((logprob,) * len(choice.encode()) for logprob, choice in zip(each, choices, strict=True))


def _part_bytes(part: Part) -> bytes:
    match part:
        case Text(text):
            return text.encode()
        case Tokens(tokens):
            return bytes(unpack(tokens))
        case BeginRole(role):
            return f"<{role}>".encode()
        case EndRole(role):
            return f"</{role}>".encode()


def _thinking(answer: bytes) -> tuple[bytes, bytes]:
    """What stands between <think> and </think> at the beginning, and the rest."""
    if not answer.startswith(b"<think>"):
        return b"", answer
    thought, _, rest = answer.removeprefix(b"<think>").partition(b"</think>")
    return thought.strip(), rest.lstrip()


def _stopped(answer: bytes, params: SamplingParams) -> tuple[bytes, FinishReason, str | int | None]:
    """The answer up to the first stop, else up to max_tokens (bytes)."""
    limit = len(answer) if params.max_tokens is None else params.max_tokens
    ends: list[tuple[int, str | int]] = [(answer.find(stop.encode()), stop) for stop in params.stop]
    ends += [(answer.find(bytes([stop])), stop) for stop in params.stop_token_ids if 0 <= stop < 256]
    ends += [(at.start(), stop) for stop in params.stop_regex if (at := re.search(stop.encode(), answer))]
    found = sorted((end, str(stop), stop) for end, stop in ends if 0 <= end < limit)
    if found:
        return answer[: found[0][0]], "stop", found[0][2]
    if len(answer) > limit:
        return answer[:limit], "length", None
    return answer, "stop", None


def _in_order(answers: list[str]) -> Callable[[str], Answer]:
    left = iter(answers)

    def next_answer(prompt: str) -> str:
        for answer in left:
            return answer
        raise InvalidRequest(
            f"The script has {len(answers)} answers, and one more was asked for (behind {prompt[-40:]!r}).",
            hint="Give more answers, or a function.",
        )

    return next_answer
