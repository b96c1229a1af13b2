"""Requests with one answer: log-probabilities of given texts, and embeddings.

One for each Frontend, which encodes texts for it (`frontend.scores`). Used by branches and by the surfaces that score,
rank and embed; knows no HTTP.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Protocol

from palmette.runtime.errors import ContextLengthExceeded, InvalidRequest
from palmette.runtime.frontend.calls import OpenCalls
from palmette.runtime.frontend.state import Message, StateEditor
from palmette.runtime.messages.branches import ChoiceScores
from palmette.runtime.messages.replies import Embedded, Scored, Usage
from palmette.runtime.messages.requests import Embed, PoolingKind, Scheduling, Score
from palmette.runtime.messages.tokens import count, pack

MOST_CHOICES = 1024  # of one score: each is a sequence of its own in the engine


class Texts(Protocol):
    """What scores need of the frontend: texts made tokens, and back."""

    context_length: int
    editor: StateEditor

    async def tokens_of(self, prompt: str | Sequence[int] | Sequence[Message]) -> list[int]: ...

    async def encode(self, text: str) -> list[int]: ...

    def texts_of(self, tokens: Sequence[int]) -> tuple[str, ...]: ...

    def check_size(self, characters: int, param: str) -> None: ...


class Scores:
    """See the module."""

    def __init__(self, texts: Texts, calls: OpenCalls) -> None:
        self._texts = texts
        self._calls = calls

    async def score(
        self,
        prompt: str | Sequence[int] | Sequence[Message],
        choices: Sequence[str],
        *,
        namespace: str = "",
        unconditional: bool = False,
        scheduling: Scheduling = Scheduling(),
    ) -> ChoiceScores:
        """Log-probabilities of each choice, encoded as a run of its own, behind `prompt`."""
        tokens = await self._texts.tokens_of(prompt)
        return await self.score_packed(
            pack(tokens), choices, namespace=namespace, unconditional=unconditional, scheduling=scheduling
        )

    async def score_packed(
        self,
        prefix: bytes,
        choices: Sequence[str],
        *,
        namespace: str = "",
        unconditional: bool = False,
        scheduling: Scheduling = Scheduling(),
    ) -> ChoiceScores:
        """`score` behind packed ids. `unconditional`: each choice also behind the start token alone."""
        if not 1 <= len(choices) <= MOST_CHOICES:
            raise InvalidRequest(
                f"{len(choices)} choices were given; a call scores 1 to {MOST_CHOICES}.",
                hint="Score them in several calls.",
                param="choices",
            )
        self._texts.check_size(max(map(len, choices)), "choices")
        encoded = [await self._texts.encode(choice) for choice in choices]
        for choice, tokens in zip(choices, encoded, strict=True):
            self._check_choice(choice, tokens, count(prefix))
        continuations = tuple(pack(tokens) for tokens in encoded)
        conditional = self.score_tokens(prefix, continuations, namespace=namespace, scheduling=scheduling)
        if unconditional:
            start = pack([self._texts.editor.start_token])
            alone = self.score_tokens(start, continuations, namespace=namespace, scheduling=scheduling)
            scored, free = await asyncio.gather(conditional, alone)
        else:
            scored, free = await conditional, None
        return ChoiceScores(
            tokens=tuple(tuple(tokens) for tokens in encoded),
            token_texts=tuple(self._texts.texts_of(tokens) for tokens in encoded),
            logprobs=scored.logprobs,
            unconditional=free.logprobs if free is not None else None,
            usage=scored.usage if free is None else _summed(scored.usage, free.usage),
        )

    async def score_tokens(
        self,
        prefix: bytes,
        continuations: Sequence[bytes],
        *,
        namespace: str = "",
        scheduling: Scheduling = Scheduling(),
    ) -> Scored:
        """Log-probabilities of packed ids behind packed ids. The engine refuses what doesn't fit the context."""
        request = Score(
            id=uuid.uuid4().hex,
            prefix=prefix,
            continuations=tuple(continuations),
            namespace=namespace,
            priority=scheduling.priority,
            tenant=scheduling.tenant,
            ttft_target=scheduling.ttft_target,
            deadline=scheduling.deadline,
            under_way=scheduling.under_way,
        )
        return await self._calls.ask(request, Scored)

    def _check_choice(self, choice: str, tokens: Sequence[int], prefix: int) -> None:
        if not tokens:
            raise InvalidRequest(f"The choice {choice!r} has no tokens, so it has no score.", param="choices")
        if prefix + len(tokens) > self._texts.context_length:
            raise ContextLengthExceeded(
                f"{prefix} tokens and the {len(tokens)} of a choice are {prefix + len(tokens)};"
                f" the context has {self._texts.context_length}.",
                hint="Shorten the prompt.",
                param="choices",
            )

    async def embed(
        self,
        inputs: Sequence[Sequence[int]],
        *,
        pooling: PoolingKind = "mean",
        namespace: str = "",
        scheduling: Scheduling = Scheduling(),
    ) -> Embedded:
        """A vector of each input (token ids), of whatever length the model gives it. Raises InvalidRequest or
        ContextLengthExceeded, naming the input."""
        for index, tokens in enumerate(inputs):
            if len(tokens) > self._texts.context_length:
                raise ContextLengthExceeded(
                    f"Input {index} has {len(tokens)} tokens; the context has {self._texts.context_length}.",
                    hint="Cut it into shorter ones.",
                    param=f"input.{index}",
                )
        request = Embed(
            id=uuid.uuid4().hex,
            inputs=tuple(map(pack, inputs)),
            pooling=pooling,
            namespace=namespace,
            priority=scheduling.priority,
            tenant=scheduling.tenant,
            ttft_target=scheduling.ttft_target,
            deadline=scheduling.deadline,
        )
        return await self._calls.ask(request, Embedded)


def _summed(first: Usage, second: Usage) -> Usage:
    """Two requests as one: counts are summed, times are the longer ones."""
    sums = {
        name: getattr(first, name) + getattr(second, name)
        for name in Usage.__struct_fields__
        if not name.endswith("_seconds")
    }
    times = {
        name: max(getattr(first, name), getattr(second, name))
        for name in Usage.__struct_fields__
        if name.endswith("_seconds")
    }
    return Usage(**sums, **times)
