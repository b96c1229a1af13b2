"""From a request on the wire to sequences, or to a clear refusal at once.

Knows the limits of this engine (context, vocabulary, pool); knows nothing of what is running.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from typing import get_args

import numpy as np

from palmette.runtime.errors import ContextLengthExceeded, InvalidRequest, NeverFits
from palmette.runtime.messages.requests import Embed, Generate, PoolingKind, Score
from palmette.runtime.messages.tokens import TOKEN_BYTES, count, unpack
from palmette.runtime.scheduler.pooling import Pooling
from palmette.runtime.scheduler.scoring import ChoiceTree, PromptScoring
from palmette.runtime.scheduler.sequence import EmbedGroup, Generation, ScoreGroup, Sequence
from palmette.runtime.scheduler.stops import StopChecker
from palmette.runtime.scheduler.targets import NO_TARGETS, Targets
from palmette.runtime.vocabulary import Vocabulary

MAX_OUTPUT_INDEX = 2**62  # the step's arrays hold output indices as int64


class Intake:
    """Checks requests. `context_length` is the model's or the configured one.

    `pool_tokens`: what the KV pool holds; the core lowers it when pages are taken out of use. `targets`: of requests
    that state none.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        context_length: int,
        pool_tokens: int,
        targets: Targets = NO_TARGETS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vocabulary = vocabulary
        self._context_length = context_length
        self.pool_tokens = pool_tokens
        self._default_targets = targets
        self._clock = clock
        self._arrivals = 0

    def generate(self, request: Generate) -> Sequence:
        """Raises InvalidRequest, ContextLengthExceeded or NeverFits."""
        params = request.params.check(self._vocabulary.size)
        if not 0 <= request.first_output_index <= MAX_OUTPUT_INDEX:
            raise InvalidRequest(
                f"first_output_index={request.first_output_index!r} is not from 0 to {MAX_OUTPUT_INDEX}.",
                param="first_output_index",
            )
        length = self._check_tokens(request.prompt, "prompt")
        room = min(self._context_length, self.pool_tokens) - length
        max_tokens = room if params.max_tokens is None else params.max_tokens
        self._check_room(length, max(max_tokens, 1 if params.max_tokens is None else 0), "max_tokens")
        ending = () if params.ignore_eos else self._vocabulary.eos_ids
        seen: dict[int, int] | None = None
        if params.repetition_penalty != 1:
            seen = dict.fromkeys(unpack(request.prompt), 0)
        elif params.frequency_penalty != 0 or params.presence_penalty != 0:
            seen = {}
        tokens = bytearray(request.prompt)
        sequence = self._sequence(request, tokens, self._targets(request))
        sequence.generation = Generation(
            params=params,
            seed=params.seed if params.seed is not None else secrets.randbits(63),
            first_output_index=request.first_output_index,
            max_tokens=max_tokens,
            stops=StopChecker(
                self._vocabulary,
                strings=params.stop,
                token_ids=(*ending, *params.stop_token_ids),
                min_tokens=params.min_tokens,
            ),
            barred=(*ending, *params.stop_token_ids),
            seen=seen,
            reply_seconds=request.reply_seconds,
        )
        if request.prompt_logprobs_from is not None and request.prompt_logprobs_from < length:
            first = max(1, request.prompt_logprobs_from)
            sequence.scoring = PromptScoring(request.prompt, first, params.top_logprobs)
        return sequence

    def score(self, request: Score) -> list[Sequence]:
        """The sequences that score its continuations. Raises InvalidRequest, ContextLengthExceeded or NeverFits."""
        prefix = self._check_tokens(request.prefix, "prefix")
        if not request.continuations:
            raise InvalidRequest("A score request has no continuations.", param="continuations")
        for index, continuation in enumerate(request.continuations):
            length = prefix + self._check_tokens(continuation, f"continuations[{index}]")
            self._check_room(length, 0, "continuations")
        targets = self._targets(request)
        choices = ChoiceTree(prefix, request.continuations)
        group = ScoreGroup(request.id, choices)
        sequences = []
        for stem, scoring in choices.stems:
            sequence = self._sequence(request, bytearray(request.prefix + stem), targets)
            sequence.scoring, sequence.group = scoring, group
            sequences.append(sequence)
        return sequences

    def embed(self, request: Embed) -> list[Sequence]:
        """One sequence an input. Raises InvalidRequest, ContextLengthExceeded or NeverFits."""
        if not request.inputs:
            raise InvalidRequest("An embedding request has no inputs.", param="inputs")
        if request.pooling not in get_args(PoolingKind):
            raise InvalidRequest(
                f"pooling={request.pooling!r} is not known.",
                hint=f"Use one of {', '.join(map(repr, get_args(PoolingKind)))}.", param="pooling",
            )  # fmt: skip
        targets = self._targets(request)
        group = EmbedGroup(request.id, len(request.inputs))
        sequences = []
        for index, tokens in enumerate(request.inputs):
            length = self._check_tokens(tokens, f"inputs[{index}]")
            self._check_room(length, 0, f"inputs[{index}]")
            sequence = self._sequence(request, bytearray(tokens), targets)
            sequence.pooling = Pooling.of(request.pooling, length)
            sequence.group, sequence.group_index = group, index
            sequences.append(sequence)
        return sequences

    def _sequence(self, request: Generate | Score | Embed, tokens: bytearray, targets: Targets) -> Sequence:
        self._arrivals += 1
        return Sequence(
            request_id=request.id,
            tokens=tokens,
            prompt_length=len(tokens) // TOKEN_BYTES,
            namespace=request.namespace,
            order=self._arrivals,
            arrival=self._clock(),
            priority=request.priority,
            tenant=request.tenant,
            under_way=not isinstance(request, Embed) and request.under_way,
            targets=targets,
        )

    def _targets(self, request: Generate | Score | Embed) -> Targets:
        tpot = request.tpot_target if isinstance(request, Generate) else None
        stated = {"ttft_target": request.ttft_target, "tpot_target": tpot, "deadline": request.deadline}
        for name, seconds in stated.items():
            if seconds is not None and not 0 < seconds < math.inf:
                raise InvalidRequest(f"{name}={seconds!r} is no positive number of seconds.", param=name)
        targets = Targets(request.ttft_target, tpot, request.deadline)
        return targets or self._default_targets

    def _check_tokens(self, tokens: bytes, name: str) -> int:
        if not tokens or len(tokens) % TOKEN_BYTES:
            raise InvalidRequest(f"{name} has {len(tokens)} bytes; it needs at least one 4-byte token id.", param=name)
        ids = np.frombuffer(tokens, "<i4")
        outside = (ids < 0) | (ids >= self._vocabulary.size)
        if outside.any():
            at = int(outside.argmax())
            raise InvalidRequest(
                f"{name} has token id {int(ids[at])!r} at position {at}; "
                f"the vocabulary has ids 0 to {self._vocabulary.size - 1}.",
                param=name,
            )
        return count(tokens)

    def _check_room(self, length: int, more: int, what: str) -> None:
        total = length + more
        counted = f"{length} prompt tokens + {what} {more} = {total}" if more else f"{length} prompt tokens"
        if total > self._context_length:
            raise ContextLengthExceeded(
                f"{counted}, but the context has {self._context_length}.",
                hint=f"Shorten the prompt{' or lower ' + what if more else ''}.", param=what,
            )  # fmt: skip
        if total > self.pool_tokens:
            raise NeverFits(
                f"{counted}, but the whole KV pool has {self.pool_tokens} tokens.",
                hint="Start the engine with a larger kv_tokens, or send less.", param=what,
            )  # fmt: skip
