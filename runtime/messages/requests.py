"""What the front process asks of the engine."""

from __future__ import annotations

from typing import Literal, NewType

import msgspec

from palmette.runtime.messages.hints import Hint
from palmette.runtime.messages.sampling import SamplingParams

RequestId = NewType("RequestId", str)
PoolingKind = Literal["mean", "last"]  # of every token's hidden state, or that of the last token

UNWATCHED_SECONDS = 0.2
"""Between replies, where nobody sees an output grow: each costs every process on its way some time. The last one comes
at once."""


class Scheduling(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How soon a request is wanted, and on whose account. Seconds are from its arrival."""

    priority: int = 0
    tenant: str = ""  # who shares fairly: an API key, else a user
    ttft_target: float | None = None  # to the first output token, or to the score
    tpot_target: float | None = None  # an output token after the first, on average
    deadline: float | None = None  # to the last output token
    under_way: bool = False  # a call of a program that was let in: before those that begin something


class Generate(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag=True):
    """Continue `prompt`. Answered by any number of Generated, the last with `finish`, or by one Failed."""

    id: str
    prompt: bytes  # token ids, int32 little-endian, at least one
    params: SamplingParams
    namespace: str = ""  # requests of different namespaces never share pages
    first_output_index: int = 0  # sampling noise is a function of (seed, first_output_index + i)
    prompt_logprobs_from: int | None = None  # report logprobs of prompt tokens at positions >= max(1, this)
    priority: int = 0
    tenant: str = ""  # who shares fairly: an API key, else a user
    ttft_target: float | None = None  # seconds from arrival to the first output token
    tpot_target: float | None = None  # seconds an output token after the first, on average
    deadline: float | None = None  # seconds from arrival to the last output token
    under_way: bool = False  # a call of a program that was let in: before those that begin something
    reply_seconds: float = 0.0  # between replies that only bring more tokens, at least; the first comes at once


class Score(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag=True):
    """Log-probabilities of each continuation's tokens behind `prefix`. Answered by one Scored or Failed."""

    id: str
    prefix: bytes  # at least one token
    continuations: tuple[bytes, ...]  # each at least one token
    namespace: str = ""
    priority: int = 0
    tenant: str = ""
    ttft_target: float | None = None  # seconds from arrival to the score
    deadline: float | None = None  # the same; the earlier of both counts
    under_way: bool = False  # a call of a program that was let in: before those that begin something


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A vector of each input: its hidden states behind the final norm, pooled. Answered by one Embedded or Failed."""

    id: str
    inputs: tuple[bytes, ...]  # each at least one token
    pooling: PoolingKind = "mean"
    namespace: str = ""
    priority: int = 0
    tenant: str = ""
    ttft_target: float | None = None  # seconds from arrival to the answer
    deadline: float | None = None  # the same; the earlier of both counts


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop a request. An open Generate is answered with finish reason "abort", a Score or an Embed with Failed."""

    id: str


class FlushCache(msgspec.Struct, frozen=True, tag=True):
    """Drop every cached page that no request is using. Answered by Flushed. Safe under load."""

    id: str


class DumpTree(msgspec.Struct, frozen=True, tag=True):
    """Answered by TreeDump: the radix tree, flat, parents before children."""

    id: str


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """Finish what is running if `drain`, else abort it; then end the engine's loop."""

    drain: bool = False


Asked = Generate | Score | Embed | FlushCache | DumpTree  # those that are answered
Request = Asked | Abort | Hint | Shutdown


class RequestBatch(msgspec.Struct, frozen=True):
    """One ZeroMQ message from a front process."""

    requests: tuple[Request, ...]
