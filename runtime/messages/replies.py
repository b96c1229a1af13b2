"""What the engine answers. One ReplyBatch a step and front process, not one message a request."""

from __future__ import annotations

from typing import Literal

import msgspec

from palmette.runtime.errors import ErrorInfo

FinishReason = Literal["stop", "length", "abort"]


class TokenLogprob(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The raw-logit log-probability of one token and of the most likely tokens at its position (best first).

    `logprob` is None for a token that a grammar forced: the model was not asked.
    """

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


class Usage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a request used. Seconds are of the engine's monotonic clock."""

    prompt_tokens: int = 0
    completion_tokens: int = 0  # every sampled token, the stopping one too
    cached_tokens: int = 0  # prompt tokens not computed because their KV was in the tree
    reusable_tokens: int = 0  # what an infinite cache would have reused, in execution order
    computed_tokens: int = 0  # prompt tokens this request computed itself, recomputation after retraction included
    retractions: int = 0
    queue_seconds: float = 0.0
    first_token_seconds: float = 0.0  # from arrival to the first output token (or the score)
    total_seconds: float = 0.0


class Finish(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How an output ended.

    A stop can end inside a token: the first `kept_tokens` output tokens lie wholly before it, and `kept_bytes` are
    the bytes of the following token (or tokens) before it. Text = decode(tokens[:kept_tokens]) + kept_bytes.
    """

    reason: FinishReason
    usage: Usage
    kept_tokens: int
    kept_bytes: bytes = b""
    matched: str | int | None = None  # the stop string, stop regex or stop token id that ended it
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None


class Generated(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag=True):
    """New output tokens of one request, in order. `logprobs` has one entry a token where asked for.

    `held_bytes`: of the output so far, at its end, that may still turn out to belong to a match of a stop_regex.
    """

    id: str
    tokens: bytes
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish: Finish | None = None
    held_bytes: int = 0


class Scored(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag=True):
    """`logprobs[i][j]`: the log-probability of token j of continuation i behind the prefix and its tokens before."""

    id: str
    logprobs: tuple[tuple[float, ...], ...]
    usage: Usage


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`vectors[i]`: of input i, [hidden size] float32 little-endian, of whatever length the model gives it."""

    id: str
    vectors: tuple[bytes, ...]
    usage: Usage


class Failed(msgspec.Struct, frozen=True, tag=True):
    id: str
    error: ErrorInfo


class Flushed(msgspec.Struct, frozen=True, tag=True):
    id: str
    pages: int


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the radix tree. `parent` is an index into the dump; roots have none."""

    parent: int | None
    namespace: str
    tokens: bytes
    pages: int
    leases: int
    last_used: float
    uses: int = 0  # matches that went through it


class TreeDump(msgspec.Struct, frozen=True, tag=True):
    id: str
    page_size: int
    nodes: tuple[TreeNode, ...]


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Totals since start, and gauges at this moment. The front process exports them as metrics.

    `finished`, `failed` and `aborted` count requests by their answer. `running` and `waiting` count sequences (a Score
    has one a continuation), tokens are those of every sequence that ran and has ended, however.
    """

    steps: int = 0
    running: int = 0
    waiting: int = 0
    pages_total: int = 0
    pages_free: int = 0
    pages_cached: int = 0  # in the tree, whether leased or not
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reusable_tokens: int = 0
    computed_tokens: int = 0
    completion_tokens: int = 0
    finished: int = 0
    failed: int = 0
    aborted: int = 0
    retractions: int = 0
    evicted_pages: int = 0
    quarantined_pages: int = 0
    tree_resets: int = 0  # how often the tree was damaged beyond mending and emptied
    preemptions: int = 0  # retractions for a request of higher priority; counted among the retractions too
    targeted: int = 0  # finished requests that had a target (TTFT, TPOT or deadline)
    in_time: int = 0  # those of them that met all of theirs: the goodput
    plan_seconds: float = 0.0
    execute_seconds: float = 0.0
    commit_seconds: float = 0.0
    emit_seconds: float = 0.0  # known to the link, which sends the heartbeats
    receive_seconds: float = 0.0
    grammar_seconds: float = 0.0  # that requests have waited for their grammars to be compiled
    decode_rows: int = 0  # rows of steps that computed one output token's successor
    prefill_rows: int = 0  # all others
    prefill_tokens: int = 0  # that those computed
    batch_sizes: tuple[int, ...] = ()  # steps of 1 row, of 2, of 3 or 4, of 5 to 8 … (doubling)


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """Sent every second or so by the scheduler's loop, also when idle."""

    counters: Counters


class EngineReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message of an engine process."""

    model: str
    context_length: int
    kv_tokens: int
    page_size: int
    threads: int
    dtype: str
    kv_dtype: str = "bfloat16"  # of the KV pool
    kernels: str
    load_seconds: float
    embedding_size: int | None = None  # numbers in an embedding


class EngineProgress(msgspec.Struct, frozen=True, tag=True):
    """What an engine process does before it is ready, for a person to read."""

    text: str


class EngineFailed(msgspec.Struct, frozen=True, tag=True):
    """The engine process can't start, and ends; trying again gives the same."""

    error: ErrorInfo


Answer = Generated | Scored | Embedded | Failed | Flushed | TreeDump  # to one request, by its id
Reply = Answer | Heartbeat | EngineReady | EngineProgress | EngineFailed


class ReplyBatch(msgspec.Struct, frozen=True):
    replies: tuple[Reply, ...]
