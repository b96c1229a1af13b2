"""The forms of answers and events on /v1/responses: for the OpenAPI document, and for tests that hold every answer
against it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from palmette.runtime.api.openai.answers import Answer

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class InputTokensDetails(Answer):
    cached_tokens: int
    """Input tokens that were not computed: their keys and values were in the tree."""
    cache_write_tokens: int
    """The others: they are in the tree now."""


class OutputTokensDetails(Answer):
    reasoning_tokens: int


class ResponseUsage(Answer):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class OutputTopLogprob(Answer):
    token: str
    logprob: float
    bytes: list[int]


class OutputLogprob(Answer):
    token: str
    logprob: float
    """-9999 for a token that a grammar forced so as to come to its end within max_tokens: the model was not asked."""
    bytes: list[int]
    top_logprobs: list[OutputTopLogprob]


class OutputText(Answer):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[OutputLogprob] = Field(default_factory=list)
    """Of the message's tokens, where they were asked for."""


class RefusalText(Answer):
    type: Literal["refusal"]
    refusal: str


class InputText(Answer):
    type: Literal["input_text"]
    text: str


class ReasoningText(Answer):
    type: Literal["reasoning_text"]
    text: str


class SummaryText(Answer):
    type: Literal["summary_text"]
    text: str


class OutputMessage(Answer):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText | RefusalText]


class FunctionCallAnswer(Answer):
    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    """What the function returned is sent with it."""
    name: str
    arguments: str
    """JSON text."""


class ReasoningAnswer(Answer):
    id: str
    type: Literal["reasoning"]
    summary: list[SummaryText]
    content: list[ReasoningText | SummaryText]
    """What the model thought, as it was."""
    status: ItemStatus | None = None


class InputMessage(Answer):
    id: str
    type: Literal["message"]
    role: Literal["user", "system", "developer"]
    status: ItemStatus
    content: list[InputText]


class FunctionOutputAnswer(Answer):
    id: str
    type: Literal["function_call_output"]
    status: ItemStatus
    call_id: str
    output: str | list[InputText]


OutputItem = Annotated[OutputMessage | FunctionCallAnswer | ReasoningAnswer, Field(discriminator="type")]
InputItem = OutputMessage | InputMessage | FunctionCallAnswer | FunctionOutputAnswer | ReasoningAnswer


class ResponseFault(Answer):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class IncompleteDetails(Answer):
    reason: Literal["max_output_tokens"]


class ReasoningEcho(Answer):
    effort: str | None
    summary: None


class TextEcho(Answer):
    format: dict[str, Any]
    verbosity: str


class ResponseAnswer(Answer):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    background: bool
    error: ResponseFault | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_diagnostics: None
    reasoning: ReasoningEcho
    store: bool
    temperature: float
    text: TextEcho
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    """None until the response has ended."""
    user: str | None


class DeletedResponse(Answer):
    id: str
    object: Literal["response"]
    deleted: bool


class InputItems(Answer):
    """The conversation that a response answers, those of previous responses included."""

    object: Literal["list"]
    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(Answer):
    object: Literal["response.input_tokens"]
    input_tokens: int


# --- events ---


class _Event(Answer):
    sequence_number: int


class LifeCycleEvent(_Event):
    type: Literal[
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: ResponseAnswer


class OutputItemEvent(_Event):
    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItem


class ContentPartEvent(_Event):
    type: Literal["response.content_part.added", "response.content_part.done"]
    item_id: str
    output_index: int
    content_index: int
    part: OutputText | ReasoningText


class TextDeltaEvent(_Event):
    type: Literal["response.output_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[OutputLogprob]


class TextDoneEvent(_Event):
    type: Literal["response.output_text.done"]
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[OutputLogprob]


class ReasoningDeltaEvent(_Event):
    type: Literal["response.reasoning_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str


class ReasoningDoneEvent(_Event):
    type: Literal["response.reasoning_text.done"]
    item_id: str
    output_index: int
    content_index: int
    text: str


class ArgumentsDeltaEvent(_Event):
    type: Literal["response.function_call_arguments.delta"]
    item_id: str
    output_index: int
    delta: str


class ArgumentsDoneEvent(_Event):
    type: Literal["response.function_call_arguments.done"]
    item_id: str
    output_index: int
    name: str
    arguments: str


class FaultEvent(_Event):
    """The stream itself failed."""

    type: Literal["error"]
    code: str | None
    message: str
    param: str | None


class ResponseEvent(
    pydantic.RootModel[
        Annotated[
            LifeCycleEvent
            | OutputItemEvent
            | ContentPartEvent
            | TextDeltaEvent
            | TextDoneEvent
            | ReasoningDeltaEvent
            | ReasoningDoneEvent
            | ArgumentsDeltaEvent
            | ArgumentsDoneEvent
            | FaultEvent,
            Field(discriminator="type"),
        ]
    ]
):
    """An event of a stream; its type is the event's name too."""
