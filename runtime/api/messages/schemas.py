"""The request bodies of /v1/messages and /v1/messages/count_tokens, named as Anthropic's clients write them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from palmette.runtime.api.access import Caller
from palmette.runtime.api.bodies import Body
from palmette.runtime.api.json_types import NAMED, listed, schema
from palmette.runtime.api.lenient import LenientBody
from palmette.runtime.api.sampling_fields import SamplingFields, one_grammar
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint, GrammarSource, as_json
from palmette.runtime.messages.requests import Scheduling


def _one_of(*models: type[Body]) -> dict[str, Any]:
    """Their schema, by name: the routes give them to the document (PARTS)."""
    named = [{NAMED: model.__name__} for model in models]
    return named[0] if len(named) == 1 else {"anyOf": named}


def _content(*blocks: type[Body]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _one_of(*blocks)}]})


# --- content ---


class Block(Body):
    """Base of the content blocks."""

    without_effect: ClassVar[frozenset[str]] = frozenset({"cache_control"})


class TextBlock(Block):
    type: Literal["text"]
    text: str

    without_effect: ClassVar[frozenset[str]] = frozenset({"citations"})


class ThinkingBlock(Block):
    """What the assistant thought; some templates show it to the model."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""
    """Any is accepted."""


class RedactedThinkingBlock(Block):
    """Another server's thoughts, which only that can read."""

    type: Literal["redacted_thinking"]

    without_effect: ClassVar[frozenset[str]] = frozenset({"data"})


class ToolUseBlock(Block):
    """A call that the assistant made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]

    unsupported: ClassVar[dict[str, str]] = {"toolset_name": "tools are functions here"}
    without_effect: ClassVar[frozenset[str]] = frozenset({"caller"})


class ToolResultBlock(Block):
    """What a tool returned, in the message behind the call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[str | list[Any], _content(TextBlock)] = ""
    is_error: bool = False
    """The tool failed: the model reads `Error: ` before the content."""

    unsupported: ClassVar[dict[str, str]] = {"toolset_name": "tools are functions here"}


class MessageParam(Body):
    """A turn, or part of one: turns of the same role that follow one another are one. A `system` message may stand
    anywhere that the model's template takes one."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[
        str | list[Any],
        _content(TextBlock, ThinkingBlock, RedactedThinkingBlock, ToolUseBlock, ToolResultBlock),
    ]


# --- tools ---


class ToolParam(Body):
    type: Literal["custom"] = "custom"
    name: str
    description: str = ""
    input_schema: dict[str, Any]
    """A JSON schema of an object."""
    strict: bool = False
    """`input` meets the schema even where the model may choose not to call."""
    input_examples: list[dict[str, Any]] = Field(default_factory=list)
    """Shown to the model with the schema."""
    allowed_callers: list[str] = Field(default_factory=lambda: ["direct"])
    """`direct` is the only one here."""

    unsupported: ClassVar[dict[str, str]] = {"defer_loading": "there is no search for tools here"}
    without_effect: ClassVar[frozenset[str]] = frozenset({"cache_control", "eager_input_streaming"})


class AutoToolChoice(Body):
    """The model may call."""

    type: Literal["auto"]
    disable_parallel_tool_use: bool = False
    """True: the output ends with its first call."""


class AnyToolChoice(Body):
    """It calls, whichever it likes."""

    type: Literal["any"]
    disable_parallel_tool_use: bool = False


class NamedToolUse(Body):
    """It calls this one."""

    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class NoToolChoice(Body):
    """It doesn't call, and isn't told of the tools."""

    type: Literal["none"]


# --- the rest ---


class ThinkingConfig(Body):
    """`enabled`: for models that think; `disabled`: for those that needn't; `adaptive`: as the model does anyway."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    display: Literal["summarized", "omitted"] = "summarized"
    """`omitted`: thinking blocks come without their text."""

    without_effect: ClassVar[frozenset[str]] = frozenset({"budget_tokens"})


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """For models whose template has levels of reasoning."""
    format: OutputFormat | None = None
    """The answer is JSON that meets this schema; where the model calls tools instead, it doesn't apply."""


class Metadata(Body):
    user_id: str | None = None
    """Who shares fairly, where no API key tells."""


class TurnFields(LenientBody):
    model: str = ""
    """One of the served names; the served model where it is left out."""
    messages: Annotated[list[dict[str, Any]], listed("MessageParam")]
    """The conversation so far. Where the last message is the assistant's, the output goes on with it. What spells a
    special token is text."""
    system: Annotated[str | list[Any], _content(TextBlock)] = ""
    """Instructions, as a text or text blocks."""
    tools: Annotated[list[dict[str, Any]], listed("ToolParam")] = Field(default_factory=list)
    """Functions that the model may call."""
    tool_choice: Annotated[
        dict[str, Any] | None, WithJsonSchema(_one_of(AutoToolChoice, AnyToolChoice, NamedToolUse, NoToolChoice))
    ] = None
    """Whether it may, must or must not call, and which. Where it must, the output is calls alone, and their `input`
    meets the schemas."""
    thinking: Annotated[dict[str, Any] | None, WithJsonSchema(_one_of(ThinkingConfig))] = None
    """Whether the model thinks before it answers; as its template has it where this is left out."""
    output_config: OutputConfig | None = None
    """How much the model thinks, and the form of its answer."""
    output_format: OutputFormat | None = None
    """Older name of `output_config.format`."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further variables of the model's template."""
    thread: dict[str, Any] | None = None
    """Refused, even by a lenient server: a conversation isn't kept between requests. Helpers that are told so send it
    whole."""

    unsupported: ClassVar[dict[str, str]] = {
        "container": "there are no containers here",
        "mcp_servers": "the server connects to no others; give their tools as tools of yours",
        "compaction": "conversations are not summarized here",
    }
    without_effect: ClassVar[frozenset[str]] = frozenset(
        {
            "billing_policy",
            "cache_control",
            "context_management",
            "diagnostics",
            "fallback_credit_token",
            "fallbacks",
            "inference_geo",
            "service_tier",
            "speed",
            "user_profile_id",
        }
    )

    def thinking_config(self) -> ThinkingConfig | None:
        return None if self.thinking is None else self.nested(self.thinking, ThinkingConfig, "thinking")

    @property
    def format(self) -> OutputFormat | None:
        """Raises InvalidRequest where it was given twice."""
        given = self.output_config.format if self.output_config is not None else None
        if given is not None and self.output_format is not None:
            raise InvalidRequest(
                "output_config.format and output_format were given; they are two names of one thing.",
                hint="Give output_config.format.",
                param="output_format",
            )
        return given or self.output_format


class CountTokensBody(TurnFields):
    """Fields as in a request of /v1/messages."""


class MessagesBody(TurnFields, SamplingFields, SchedulingFields):
    max_tokens: Annotated[int, schema(minimum=0)]
    """Output tokens at most, thinking included; fewer where the context has no room for so many. 0 computes the prompt,
    so that it is cached, and no more."""
    stop_sequences: list[str] = Field(default_factory=list)
    """The output ends before the first of these texts, which is named in the answer."""
    stream: bool = False
    """Send the message as server-sent events, as it comes."""
    metadata: Metadata | None = None

    def scheduling(self, caller: Caller) -> Scheduling:
        if self.user is None and self.metadata is not None:
            self.user = self.metadata.user_id
        return super().scheduling(caller)

    def grammar(self) -> Constraint | None:
        form, wanted = self.format, None
        if form is not None:
            source = GrammarSource(kind="json_schema", text=as_json(form.schema_, "output_config.format.schema"))
            wanted = Constraint(grammar=source, jump=self.jump, complete=self.complete is True)
        return one_grammar(super().grammar(), wanted, "output_config.format", "schema")


PARTS: tuple[type[Body], ...] = (
    MessageParam,
    TextBlock,
    ThinkingBlock,
    RedactedThinkingBlock,
    ToolUseBlock,
    ToolResultBlock,
    ToolParam,
    AutoToolChoice,
    AnyToolChoice,
    NamedToolUse,
    NoToolChoice,
    ThinkingConfig,
)  # of bodies, that the schemas name
