"""One token sequence on its way through the engine, and what it owns: tokens, pages, a lease, sampling state.

A Generate request is one sequence; a Score request is one a continuation, an Embed one an input, gathered by a Group.
Only the scheduler's core moves a sequence between states; this module just says what the states need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from struct import Struct

from palmette.radix_cache.cache import Lease
from palmette.radix_cache.pages import PageId
from palmette.runtime.messages.replies import Embedded, Scored, TokenLogprob, Usage
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import TOKEN_BYTES
from palmette.runtime.scheduler.constrained import Constrained
from palmette.runtime.scheduler.pooling import Pooling
from palmette.runtime.scheduler.scoring import ChoiceScoring, ChoiceTree, Scoring
from palmette.runtime.scheduler.stops import StopChecker
from palmette.runtime.scheduler.targets import NO_TARGETS, Targets

_RECORD = Struct("<Qffffffiiii")  # the first fields of a SAMPLE (runtime/plan.py)


@dataclass(slots=True)
class Generation:
    """How a sequence is continued. `seen` counts output occurrences of the tokens that a penalty concerns."""

    params: SamplingParams
    seed: int
    first_output_index: int
    max_tokens: int
    stops: StopChecker
    barred: tuple[int, ...]  # ids that may not come before min_tokens
    seen: dict[int, int] | None
    constrained: Constrained | None = None
    outputs: int = 0
    reply_seconds: float = 0.0  # between replies, at least
    next_reply: float = 0.0  # when the next is due, on the engine's clock
    unsent: int = 0  # output tokens that no reply has carried yet
    unsent_logprobs: list[TokenLogprob] = field(default_factory=list)  # of each, where asked for
    _record: bytes | None = None

    @property
    def record(self) -> bytes:
        """What of a plan's SAMPLE doesn't change over the request."""
        if self._record is None:
            params = self.params
            self._record = _RECORD.pack(
                self.seed & 0xFFFF_FFFF_FFFF_FFFF,
                params.temperature,
                params.top_p,
                params.min_p,
                params.repetition_penalty,
                params.frequency_penalty,
                params.presence_penalty,
                params.top_k or 0,
                params.top_logprobs if params.logprobs else 0,
                params.logprobs,
                0,
            )
        return self._record

    @property
    def output_index(self) -> int:
        """The RNG counter of the next sample."""
        return self.first_output_index + self.outputs

    def count(self, token: int) -> None:
        self.outputs += 1
        self.unsent += 1
        if self.seen is not None:
            self.seen[token] = self.seen.get(token, 0) + 1


class Group(ABC):
    """The `left` sequences of a request that is answered once, when all of them are done."""

    def __init__(self, id: str, left: int) -> None:
        self.id = id
        self.left = left
        self.usages: list[Usage] = []

    def end(self, sequence: Sequence, usage: Usage) -> None:
        """One of them is done."""
        self.left -= 1
        self.usages.append(usage)

    @abstractmethod
    def reply(self) -> Scored | Embedded:
        """The answer, once all are done."""
        ...

    @property
    def usage(self) -> Usage:
        """Tokens add up, waits are those of the last to finish."""
        usages = self.usages
        return Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in usages),
            cached_tokens=sum(usage.cached_tokens for usage in usages),
            reusable_tokens=sum(usage.reusable_tokens for usage in usages),
            computed_tokens=sum(usage.computed_tokens for usage in usages),
            retractions=sum(usage.retractions for usage in usages),
            queue_seconds=max(usage.queue_seconds for usage in usages),
            first_token_seconds=max(usage.first_token_seconds for usage in usages),
            total_seconds=max(usage.total_seconds for usage in usages),
        )


class ScoreGroup(Group):
    """Of a Score: the log-probabilities of each continuation's tokens."""

    def __init__(self, id: str, choices: ChoiceTree) -> None:
        super().__init__(id, len(choices.stems))
        self._choices = choices

    def reply(self) -> Scored:
        return Scored(id=self.id, logprobs=self._choices.logprobs(), usage=self.usage)


class EmbedGroup(Group):
    """Of an Embed: the vector of each input, by the sequence's `group_index`."""

    def __init__(self, id: str, inputs: int) -> None:
        super().__init__(id, inputs)
        self._vectors = [b""] * inputs

    def end(self, sequence: Sequence, usage: Usage) -> None:
        super().end(sequence, usage)
        assert sequence.pooling is not None
        self._vectors[sequence.group_index] = sequence.pooling.vector()

    def reply(self) -> Embedded:
        return Embedded(id=self.id, vectors=tuple(self._vectors), usage=self.usage)


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one sequence. KV of the first `computed` tokens is committed; `pages` is the whole block table.

    `dispatched`, `drawing` and `arriving` are off but where steps are planned while others run.
    """

    request_id: str
    tokens: bytearray  # prompt and output, int32 little-endian
    prompt_length: int
    namespace: str
    order: int  # arrival number
    arrival: float  # seconds, monotonic
    generation: Generation | None = None
    scoring: Scoring | None = None
    pooling: Pooling | None = None
    group: ScoreGroup | EmbedGroup | None = None
    group_index: int = 0
    priority: int = 0
    tenant: str = ""
    under_way: bool = False  # a call of a program that was let in already
    targets: Targets = NO_TARGETS
    moment: int = 0  # the step before which it arrived: what arrived between two steps arrived together
    computed: int = 0
    dispatched: int = 0  # positions behind those that steps in flight compute
    drawing: int = 0  # tokens that steps in flight draw
    arriving: bool = False  # admitted by a step in flight: what that copies for it isn't there yet
    pages: list[PageId] = field(default_factory=list)
    lease: Lease | None = None
    slot: int | None = None
    admitted: float | None = None
    first_token: float | None = None
    cached_tokens: int = 0
    reusable_tokens: int = 0
    computed_tokens: int = 0
    charged_outputs: int = 0  # those that its tenant was charged for
    retractions: int = 0

    @property
    def length(self) -> int:
        return len(self.tokens) // TOKEN_BYTES

    @property
    def spared(self) -> int:
        """Tokens of a score's choices that need no computing through this sequence."""
        return self.scoring.spared if isinstance(self.scoring, ChoiceScoring) else 0

    @property
    def prompt_tokens(self) -> int:
        return self.prompt_length + self.spared

    @property
    def longest(self) -> int:
        """Tokens that it may come to have."""
        return self.prompt_length + (self.generation.max_tokens if self.generation is not None else 0)

    @property
    def outputs_left(self) -> int:
        """Tokens that it may still be given."""
        generation = self.generation
        return 0 if generation is None else generation.max_tokens - generation.outputs

    @property
    def decoding(self) -> bool:
        """Only the newest output token is missing its KV."""
        return self.generation is not None and self.generation.outputs > 0 and self.computed == self.length - 1

    @property
    def planned(self) -> int:
        """Where its next row begins."""
        return self.computed + self.dispatched

    @property
    def expected(self) -> int:
        """Its length once the steps in flight have drawn their tokens."""
        return self.length + self.drawing

    @property
    def decodes_next(self) -> bool:
        """Whether its next row decodes, as far as that is known already: behind a token that is just being drawn not
        where the output ends for certain. A stop, or tokens that a grammar forces, are found too late.
        """
        if not self.drawing:
            return self.decoding
        generation = self.generation
        return generation is not None and generation.outputs + self.drawing < generation.max_tokens

    @property
    def matchable(self) -> int:
        """Length of the key to match: a match is capped one below it, so that every logit needed is computed."""
        if self.scoring is not None and not self.scoring.over:
            return self.scoring.next
        return self.length if self.pooling is None else self.pooling.matchable

    def key(self, length: int) -> bytes:
        """The first `length` tokens, packed."""
        return self.slice(0, length)

    def slice(self, start: int, end: int) -> bytes:
        """Tokens [start, end), packed."""
        return bytes(memoryview(self.tokens)[start * TOKEN_BYTES : end * TOKEN_BYTES])

    def token(self, position: int) -> int:
        start = position * TOKEN_BYTES
        return int.from_bytes(self.tokens[start : start + TOKEN_BYTES], "little", signed=True)

    def append(self, token: int) -> None:
        self.tokens += token.to_bytes(TOKEN_BYTES, "little", signed=True)

    def note_computed(self, start: int, end: int) -> None:
        """Positions [start, end) were computed, not in decoding. Forced output tokens count only where they are
        computed again."""
        last = end if self.retractions else min(end, self.prompt_length)
        self.computed_tokens += max(0, last - start)

    def usage(self, now: float) -> Usage:
        admitted = self.admitted if self.admitted is not None else now
        first = self.first_token if self.first_token is not None else now
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.generation.outputs if self.generation else 0,
            cached_tokens=min(self.cached_tokens, self.prompt_tokens),
            reusable_tokens=min(self.reusable_tokens, self.prompt_tokens),
            computed_tokens=self.computed_tokens,
            retractions=self.retractions,
            queue_seconds=admitted - self.arrival,
            first_token_seconds=first - self.arrival,
            total_seconds=now - self.arrival,
        )
