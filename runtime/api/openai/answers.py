"""The forms of OpenAI's answers on /v1/completions and /v1/models: for the OpenAPI document, and for tests that hold
every answer against it. Answers themselves are written as plain dictionaries, which takes a tenth of the time."""

from __future__ import annotations

from typing import Literal

import pydantic

FinishReason = Literal["stop", "length", "abort"]


class Answer(pydantic.BaseModel):
    """Base of the answers: they have no other fields than these, and every one of these."""

    model_config = pydantic.ConfigDict(extra="forbid", use_attribute_docstrings=True)


class PromptTokensDetails(Answer):
    cached_tokens: int
    """Prompt tokens that were not computed: their keys and values were in the tree."""


class CompletionUsage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(Answer):
    tokens: list[str]
    token_logprobs: list[float | None]
    """None for the first token of a prompt, and for tokens that a grammar forced so as to come to its end within
    max_tokens."""
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
    """The character of the choice's text in which each token begins."""


class CompletionChoice(Answer):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class CompletionAnswer(Answer):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class CompletionChunkChoice(Answer):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class CompletionChunk(Answer):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: CompletionUsage | None = None
    """In the last chunk, where stream_options.include_usage asks for it; null in the others then."""


class ModelCard(Answer):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    """The context: prompt and output tokens together."""
    type: Literal["model"]
    """From here on as Anthropic's clients read it."""
    display_name: str
    created_at: str
    """When the server was started, as RFC 3339 has it."""
    lifecycle: Literal["active"]
    max_input_tokens: int
    max_tokens: int


class ModelList(Answer):
    object: Literal["list"]
    data: list[ModelCard]
    first_id: str
    last_id: str
    has_more: bool
    """Never: all are in `data`."""
