"""The forms of the answers and events of /v1/messages, as Anthropic's clients read them: for the OpenAPI document, and
for tests that hold every answer against it. Answers themselves are written as plain dictionaries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from palmette.runtime.api.openai.answers import Answer

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class TextContent(Answer):
    type: Literal["text"]
    text: str


class ThinkingContent(Answer):
    type: Literal["thinking"]
    thinking: str
    """What the model thought; empty where the request asked to leave it out."""
    signature: str
    """A digest of it, which clients expect. Nothing depends on it."""


class ToolUseContent(Answer):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    """The arguments. Of a call that was cut off (`stop_reason` is max_tokens then): what of them was whole."""


Content = Annotated[TextContent | ThinkingContent | ToolUseContent, Field(discriminator="type")]


class MessageTokensDetails(Answer):
    thinking_tokens: int
    """Tokens of the output that were spent on thinking."""


class MessageUsage(Answer):
    input_tokens: int
    """Prompt tokens that were computed. In `message_start`, where that isn't known yet, all of them."""
    cache_creation_input_tokens: int
    """Always 0: whatever is computed is kept for as long as there is room, and nothing is charged for it."""
    cache_read_input_tokens: int
    """Prompt tokens whose keys and values were in the tree."""
    output_tokens: int
    output_tokens_details: MessageTokensDetails


class MessageAnswer(Answer):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Content]
    """Thinking, text and calls, in the order in which the model wrote them."""
    stop_reason: StopReason | None
    """Null in `message_start` only. `max_tokens` also where a call was cut off or is no JSON: don't run it.
    `model_context_window_exceeded`: at the end of the context, before `max_tokens`."""
    stop_sequence: str | None
    """The one of `stop_sequences` (or stop, stop_regex) that ended it."""
    usage: MessageUsage


class TokenCount(Answer):
    input_tokens: int


class MessageStart(Answer):
    type: Literal["message_start"]
    message: MessageAnswer


class ContentBlockStart(Answer):
    type: Literal["content_block_start"]
    index: int
    content_block: Content


class TextDeltaAnswer(Answer):
    type: Literal["text_delta"]
    text: str


class ThinkingDeltaAnswer(Answer):
    type: Literal["thinking_delta"]
    thinking: str


class SignatureDeltaAnswer(Answer):
    type: Literal["signature_delta"]
    signature: str


class InputDeltaAnswer(Answer):
    type: Literal["input_json_delta"]
    partial_json: str
    """More of the arguments; all pieces together are the beginning of a JSON object."""


class ContentBlockDelta(Answer):
    type: Literal["content_block_delta"]
    index: int
    delta: Annotated[
        TextDeltaAnswer | ThinkingDeltaAnswer | SignatureDeltaAnswer | InputDeltaAnswer, Field(discriminator="type")
    ]


class ContentBlockStop(Answer):
    type: Literal["content_block_stop"]
    index: int


class Stopped(Answer):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Answer):
    type: Literal["message_delta"]
    delta: Stopped
    usage: MessageUsage
    """The totals of the whole message."""


class MessageStop(Answer):
    type: Literal["message_stop"]


class MessageErrorDetail(Answer):
    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "timeout_error",
        "overloaded_error",
        "api_error",
    ]
    message: str
    details: dict[str, Any] | None = None
    """There where clients go by an `error_code`."""


class MessageError(Answer):
    """Every error on these paths, in a stream too."""

    type: Literal["error"]
    error: MessageErrorDetail


class MessageEvent(pydantic.RootModel[Any]):
    root: Annotated[
        MessageStart
        | ContentBlockStart
        | ContentBlockDelta
        | ContentBlockStop
        | MessageDelta
        | MessageStop
        | MessageError,
        Field(discriminator="type"),
    ]
