"""The forms of the native surface's answers, for the OpenAPI document and the tests that hold answers against it."""

from __future__ import annotations

from typing import Any, Literal

from palmette.runtime.api.openai.answers import Answer, FinishReason


class LikelyToken(Answer):
    token: int
    logprob: float


class Logprob(Answer):
    token: int
    logprob: float | None
    """None for a token that a grammar forced."""
    top: list[LikelyToken]


class FinishInfo(Answer):
    type: FinishReason
    matched: str | int | None
    """The stop string, pattern or token id that ended the output."""


class MetaInfo(Answer):
    id: str
    finish_reason: FinishInfo
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reusable_tokens: int
    """Prompt tokens that a cache without end would have held."""
    computed_tokens: int
    retractions: int
    """How often the request gave its pages to others and was computed again."""
    queue_seconds: float
    first_token_seconds: float
    total_seconds: float
    output_token_logprobs: list[Logprob] | None = None
    input_token_logprobs: list[Logprob] | None = None


class GenerateAnswer(Answer):
    text: str
    output_ids: list[int]
    meta_info: MetaInfo


class GenerateEvent(Answer):
    """What is new since the event before. `index` where there are several outputs; the last of one has `meta_info`."""

    delta: str
    output_ids: list[int]
    index: int | None = None
    output_token_logprobs: list[Logprob] | None = None
    meta_info: MetaInfo | None = None


class TokenizeAnswer(Answer):
    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: list[str] | None = None


class DetokenizeAnswer(Answer):
    prompt: str


class AbortAnswer(Answer):
    aborted: int
    """How many open requests were asked to end."""


class FlushAnswer(Answer):
    flushed_pages: int


class CacheNode(Answer):
    parent: int | None
    """The index of the node it hangs on; roots have none."""
    namespace: str
    tokens: list[int] | None = None
    text: str | None = None
    token_count: int
    pages: int
    leases: int
    last_used: float
    uses: int


class CacheAnswer(Answer):
    page_size: int
    nodes: list[CacheNode]


class HealthAnswer(Answer):
    status: Literal["starting", "ok", "degraded", "stalled", "restarting", "failed"]
    detail: str
    heartbeat_age_seconds: float | None
    running: int
    waiting: int
    quarantined_pages: int
    """Pages taken out of use because the tree was damaged there."""
    tree_resets: int
    """How often the tree was damaged beyond mending, and emptied."""
    engine_restarts: int


class ReadyAnswer(Answer):
    ready: bool
    status: str


class OpenBranchAnswer(Answer):
    id: str


class AppendedAnswer(Answer):
    appended: str
    """The text that was appended, template text included."""


class ForkAnswer(Answer):
    ids: list[str]
    appended: str


class ClosedAnswer(Answer):
    closed: bool


class ClosedManyAnswer(Answer):
    closed: int


class EmptyAnswer(Answer):
    pass


class BranchChunk(Answer):
    """A piece of a branch's output; the last has `finish` and `usage`. What is empty may be left out."""

    text: str = ""
    reasoning: str = ""
    """Of the text, what is reasoning, where the two were to be told apart."""
    answer: str = ""
    """Of the text, what is the answer."""
    tokens: list[int]
    logprobs: list[Any] | None = None
    """A list a token: its id, its log-probability, and those of the likeliest."""
    appended: str = ""
    """In the first: what the parts before the output added."""
    finish: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


class BranchScores(Answer):
    """Index i of each is choice i."""

    tokens: list[list[int]]
    token_texts: list[list[str]]
    logprobs: list[list[float]]
    unconditional: list[list[float]] | None
    usage: dict[str, Any]
    appended: str
    chosen: int | None
    """The choice that was appended, where one was to be."""
