"""The request body of /v1/chat/completions: its fields, messages, tools, and the choice among them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.json_types import like, list_of, schema
from palmette.runtime.api.lenient import LenientBody
from palmette.runtime.api.openai.fields import OpenAIFields
from palmette.runtime.messages.sampling import MAX_TOP_LOGPROBS


class TextPart(Body):
    """Part of a message's content."""

    type: Literal["text", "refusal"]
    text: str = ""
    refusal: str = ""

    without_effect: ClassVar[frozenset[str]] = frozenset({"annotations", "cache_control"})


Content = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": TextPart.model_json_schema()}]}),
]
JsonText = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})]


class CalledFunction(Body):
    name: str
    arguments: JsonText = ""
    """JSON, as text or as it is."""


class ChatToolCall(Body):
    """A call in an assistant's message."""

    id: str = ""
    type: Literal["function"] = "function"
    function: Annotated[dict[str, Any], like(CalledFunction)]

    without_effect: ClassVar[frozenset[str]] = frozenset({"index"})


class AnyMessage(Body):
    """What messages of every role have."""

    role: str
    content: Content = ""
    """A text, or a list of parts of type text."""
    tool_calls: Annotated[list[dict[str, Any]], list_of(ChatToolCall)] = Field(default_factory=list)
    """Calls that the assistant made."""
    tool_call_id: str | None = None
    """The call that a tool's message answers."""
    reasoning_content: str | None = None
    """What the assistant thought; some templates show it to the model."""
    reasoning: str | None = None
    """Another name of `reasoning_content`."""
    refusal: str | None = None
    """The assistant's words where it refused: content like any other."""

    unsupported: ClassVar[dict[str, str]] = {
        "function_call": "it was replaced by 'tool_calls'",
        "audio": "the model is text only",
    }
    without_effect: ClassVar[frozenset[str]] = frozenset({"annotations"})


class ChatMessage(AnyMessage):
    """A message of the system, developer, user or assistant."""

    without_effect: ClassVar[frozenset[str]] = frozenset({"name"})


class ToolMessage(AnyMessage):
    """What a tool returned."""

    role: Literal["tool"]
    name: str | None = None
    """Of the tool; that of the call, where it is left out."""


class FunctionTool(Body):
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    """A JSON schema; a function without it takes nothing."""
    strict: bool = False
    """Arguments meet the schema even where the model may choose not to call."""


class ChatTool(Body):
    type: Literal["function"]
    function: Annotated[dict[str, Any], like(FunctionTool)]


class NamedFunction(Body):
    name: str


class NamedToolChoice(Body):
    """One tool."""

    type: Literal["function"]
    function: Annotated[dict[str, Any], like(NamedFunction)]


class AllowedTools(Body):
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, Any]], list_of(NamedToolChoice)]


class AllowedToolsChoice(Body):
    """Some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: Annotated[dict[str, Any], like(AllowedTools)]


class ChatBody(OpenAIFields, LenientBody):
    messages: Annotated[list[dict[str, Any]], list_of(ChatMessage, ToolMessage)]
    """The conversation so far. What spells a special token in a message is text."""
    tools: Annotated[list[dict[str, Any]], list_of(ChatTool)] = Field(default_factory=list)
    """Functions that the model may call. `strict` ones are called with arguments that meet their schema."""
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | dict[str, Any],
        WithJsonSchema({"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}]}),
    ] = "auto"
    """Whether it may, must or must not call; {"type": "function", "function": {"name": …}}: which; {"type":
    "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": […]}}: some of them. With "required" and a
    named tool the output is calls alone, and their arguments meet the schemas."""
    parallel_tool_calls: bool = True
    """False: the output ends with its first call."""
    max_tokens: Annotated[int | None, schema(minimum=0)] = None
    """Another name of `max_completion_tokens`."""
    max_completion_tokens: Annotated[int | None, schema(minimum=0)] = None
    """Output tokens at most, reasoning included; the rest of the context where it is left out."""
    logprobs: bool = False
    """Log-probabilities of the output's tokens, those of reasoning and calls included."""
    top_logprobs: Annotated[int | None, schema(minimum=0, maximum=MAX_TOP_LOGPROBS)] = None
    """And of so many of the likeliest at each place."""
    reasoning_effort: str | None = None
    """Where the model's template has levels of reasoning, or can turn it off ("none")."""
    separate_reasoning: bool = True
    """Reasoning stands in `reasoning_content`; False: in the content, with its tags."""
    include_reasoning: bool = True
    """False: reasoning is read off the content and left out of the answer."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further variables of the model's template, such as {"enable_thinking": false}."""
    continue_final_message: bool = False
    """The last message is the assistant's, and the output goes on with it."""
    add_generation_prompt: bool | None = None
    """Open the assistant's turn behind the messages; true unless the last message is continued."""

    unsupported: ClassVar[dict[str, str]] = {
        "functions": "it was replaced by 'tools'",
        "function_call": "it was replaced by 'tool_choice'",
        "audio": "the model is text only",
        "prediction": "predicted outputs are not built yet",
        "web_search_options": "there is no web search here",
        "verbosity": "the model has no verbosity levels",
        "chat_template": "templates of clients are not run; start the server with --chat-template",
    }
    without_effect: ClassVar[frozenset[str]] = frozenset({"modalities"})
