"""The forms of OpenAI's answers on /v1/chat/completions: for the OpenAPI document, and for tests that hold every answer
against it."""

from __future__ import annotations

from typing import Literal

from palmette.runtime.api.openai.answers import Answer, CompletionUsage
from palmette.runtime.frontend.chat_turn import ChatFinishReason


class CompletionTokensDetails(Answer):
    reasoning_tokens: int
    """Tokens of the output that were spent on reasoning."""


class ChatUsage(CompletionUsage):
    completion_tokens_details: CompletionTokensDetails


class TopLogprob(Answer):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(Answer):
    token: str
    logprob: float
    """-9999 for a token that a grammar forced so as to come to its end within max_tokens: the model was not asked."""
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    content: list[ChatTokenLogprob]
    """Every token of the output, those of reasoning and calls included."""
    refusal: None


class FunctionCall(Answer):
    name: str
    arguments: str
    """JSON text."""


class ToolCallAnswer(Answer):
    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(Answer):
    role: Literal["assistant"]
    content: str | None
    """Null where calls stand in its place."""
    refusal: None
    reasoning_content: str | None = None
    """What the model thought before; there only where it did."""
    tool_calls: list[ToolCallAnswer] | None = None
    """There only where it called."""


class ChatChoice(Answer):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason


class ChatAnswer(Answer):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage


class FunctionCallDelta(Answer):
    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(Answer):
    """The first of a call has its id, type and name; the others more of its arguments."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionCallDelta


class ChatDelta(Answer):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(Answer):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None


class ChatChunkAnswer(Answer):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: ChatUsage | None = None
    """In the last chunk, where stream_options.include_usage asks for it; null in the others then."""
