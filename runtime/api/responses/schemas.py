"""The request body of /v1/responses: its fields, the items of its input, its tools, and the choice among them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.json_types import like, list_of, schema
from palmette.runtime.api.lenient import LenientBody
from palmette.runtime.api.limits import LONGEST_METADATA_KEY, LONGEST_METADATA_VALUE, MOST_METADATA
from palmette.runtime.api.openai.fields import JsonSchemaFormat, ResponseFormat
from palmette.runtime.api.sampling_fields import SamplingFields, one_grammar
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.messages.grammar import Constraint
from palmette.runtime.messages.sampling import MAX_TOP_LOGPROBS, SamplingParams

LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = frozenset(
    {
        LOGPROBS,
        "reasoning.encrypted_content",
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
    }
)
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class ItemPart(Body):
    """Part of a message's content, or of what a function returned. `annotations`, `logprobs` and `parsed` may come
    back with an output's."""

    type: Literal["input_text", "output_text", "text", "refusal"]
    text: str = ""
    refusal: str = ""
    annotations: Any = None
    logprobs: Any = None
    parsed: Any = None

    without_effect: ClassVar[frozenset[str]] = frozenset({"prompt_cache_breakpoint"})


ItemContent = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": ItemPart.model_json_schema()}]}),
]


class MessageItem(Body):
    """A message of the user, the system, a developer, or the assistant."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: ItemContent
    """A text, or a list of parts with text."""
    id: str | None = None
    """Kept. Items that this server made belong together by it."""
    status: ItemStatus | None = None
    phase: str | None = None


class FunctionCallItem(Body):
    """A call that the assistant made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    """JSON text, as it came."""
    id: str | None = None
    status: ItemStatus | None = None
    parsed_arguments: Any = None

    unsupported: ClassVar[dict[str, str]] = {"namespace": "tools have no namespaces here"}
    without_effect: ClassVar[frozenset[str]] = frozenset({"async", "caller", "created_by"})


class FunctionCallOutputItem(Body):
    """What a function returned."""

    type: Literal["function_call_output"]
    call_id: str
    """Of a call that stands before it."""
    output: ItemContent
    """A text, or a list of parts with text."""
    id: str | None = None
    status: ItemStatus | None = None
    name: str | None = None

    unsupported: ClassVar[dict[str, str]] = {"namespace": "tools have no namespaces here"}
    without_effect: ClassVar[frozenset[str]] = frozenset({"caller", "created_by"})


class ReasoningPart(Body):
    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Body):
    """What the assistant thought; some templates show it to the model."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: Annotated[list[dict[str, Any]], list_of(ReasoningPart)] = Field(default_factory=list)
    """Read where there is no content."""
    content: Annotated[list[dict[str, Any]], list_of(ReasoningPart)] = Field(default_factory=list)
    status: ItemStatus | None = None

    without_effect: ClassVar[frozenset[str]] = frozenset({"encrypted_content"})


class ItemReference(Body):
    """An item of a response that is kept here, by its id."""

    type: Literal["item_reference"] = "item_reference"
    id: str


AnyItem = (MessageItem, FunctionCallItem, FunctionCallOutputItem, ReasoningItem, ItemReference)


class ResponseTool(Body):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    """A JSON schema; a function without it takes nothing."""
    strict: bool = False
    """Arguments meet the schema even where the model may choose not to call."""

    unsupported: ClassVar[dict[str, str]] = {"defer_loading": "every tool is in the prompt", "async": "calls wait"}
    without_effect: ClassVar[frozenset[str]] = frozenset({"allowed_callers", "output_schema"})


class FunctionChoice(Body):
    """One tool."""

    type: Literal["function"]
    name: str


class AllowedChoice(Body):
    """Some of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, Any]], list_of(FunctionChoice)]


class TextFormat(Body):
    """`strict` false: what can't be enforced is judged at the end (an error, if it isn't met) instead of refused."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None

    def response_format(self) -> ResponseFormat:
        """The same as chat completions say it."""
        if self.type != "json_schema":
            return ResponseFormat(type=self.type)
        if self.schema_ is None:
            raise InvalidRequest(
                "text.format has the type 'json_schema' and no schema.",
                hint='Give {"type": "json_schema", "name": …, "schema": …}.',
                param="text.format.schema",
            )
        inner = JsonSchemaFormat.model_validate({"name": self.name, "schema": self.schema_, "strict": self.strict})
        return ResponseFormat(type=self.type, json_schema=inner)


class TextOptions(Body):
    format: Annotated[dict[str, Any], like(TextFormat)] | None = None
    """Free text, any JSON object, or JSON that meets a schema."""
    verbosity: Literal["low", "medium", "high"] | None = None
    """"medium", which is how the model writes anyway."""


class ReasoningOptions(Body):
    effort: str | None = None
    """Where the model's template has levels of reasoning, or can turn it off ("none")."""

    unsupported: ClassVar[dict[str, str]] = {
        "context": "what is shown of earlier reasoning is the template's choice",
        "mode": "there is one way to reason",
    }
    without_effect: ClassVar[frozenset[str]] = frozenset({"summary", "generate_summary"})


class ResponseStreamOptions(Body):
    include_obfuscation: bool = False
    """Accepted: nothing is ever padded here."""


class InputFields(LenientBody):
    """What makes a response's prompt."""

    model: str = ""
    """One of the served names; the served model where it is left out."""
    input: str | Annotated[list[Any], list_of(*AnyItem)] | None = None
    """A text of the user's, or a list of items. What spells a special token in one is text."""
    instructions: str | None = None
    """A system message in front; not inherited from a previous response."""
    previous_response_id: str | None = None
    """The input and output of that response, and of all before it, stand in front of this input."""
    tools: Annotated[list[dict[str, Any]], list_of(ResponseTool)] = Field(default_factory=list)
    """Functions that the model may call. Hosted tools are refused."""
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | dict[str, Any],
        WithJsonSchema({"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}]}),
    ] = "auto"
    """Whether it may, must or must not call; {"type": "function", "name": …}: which; {"type": "allowed_tools", "mode":
    "auto" or "required", "tools": […]}: some of them."""
    parallel_tool_calls: bool = True
    """False: the output ends with its first call."""
    text: Annotated[dict[str, Any], like(TextOptions)] | None = None
    """The form of the answer."""
    reasoning: Annotated[dict[str, Any], like(ReasoningOptions)] | None = None
    """How much the model thinks. What it thought stands in the content of reasoning items, as it was."""
    truncation: Literal["auto", "disabled"] = "disabled"
    """"disabled": what doesn't fit the context is refused. "auto" is not built yet."""

    unsupported: ClassVar[dict[str, str]] = {
        "conversation": "conversations go on by previous_response_id",
        "personality": "the model has one",
    }

    def text_options(self) -> TextOptions:
        options = self.nested(self.text or {}, TextOptions, "text")
        if options.verbosity not in (None, "medium"):
            self.refuse(
                Unsupported(
                    f"text.verbosity={options.verbosity!r}: the model has no verbosity levels.",
                    hint="Leave it out.",
                    param="text.verbosity",
                )
            )
        return options

    def text_format(self) -> TextFormat:
        return self.nested(self.text_options().format or {}, TextFormat, "text.format")

    def effort(self) -> str | None:
        return self.nested(self.reasoning or {}, ReasoningOptions, "reasoning").effort

    def check_truncation(self) -> None:
        if self.truncation == "auto":
            self.refuse(
                Unsupported(
                    "truncation='auto': items are not dropped here.",
                    hint="Leave it out, and send what fits the context.",
                    param="truncation",
                )
            )


class InputTokensBody(InputFields):
    """What would be sent to /v1/responses, for its input tokens to be counted."""


class ResponsesBody(InputFields, SamplingFields, SchedulingFields):
    max_output_tokens: Annotated[int | None, schema(minimum=0)] = None
    """Output tokens at most, reasoning included; the rest of the context where it is left out."""
    include: list[str] = Field(default_factory=list)
    """"message.output_text.logprobs": log-probabilities of the answer's tokens. Others have no effect."""
    top_logprobs: Annotated[int | None, schema(minimum=0, maximum=MAX_TOP_LOGPROBS)] = None
    """Log-probabilities, and so many of the likeliest tokens at each place."""
    metadata: dict[str, str] = Field(default_factory=dict)
    """Kept, and returned with the response."""
    max_tool_calls: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Of hosted tools, which are not here: without effect."""
    store: bool = True
    """Keep the response, for retrieval and for previous_response_id."""
    background: bool = False
    """Answer at once, and go on without the client; retrieval tells how far it is."""
    stream: bool = False
    """Send the response as server-sent events, as it comes."""
    stream_options: ResponseStreamOptions | None = None
    """What a stream holds besides; no effect without one."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further variables of the model's template, such as {"enable_thinking": false}."""

    unsupported: ClassVar[dict[str, str]] = {
        "access_programs": "there are no programs of access here",
        "background_options": "background responses run as soon as there is room",
        "context_management": "the input is never compacted",
        "moderation": "there is no moderation here",
        "prompt": "prompt templates are not kept here",
        "lora_path": "adapters are not built yet",
    }
    without_effect: ClassVar[frozenset[str]] = frozenset(
        {
            "image",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
            "safety_identifier",
            "service_tier",
        }
    )

    @property
    def logprobs(self) -> bool:
        return LOGPROBS in self.include or bool(self.top_logprobs)

    def check(self) -> None:
        """What no field says alone. Raises InvalidRequest or Unsupported."""
        self.check_truncation()
        for index, name in enumerate(self.include):
            if name not in INCLUDABLE:
                raise InvalidRequest(
                    f"include.{index}: {name!r} is nothing that a response can include.",
                    hint=f"It can include {LOGPROBS!r}.",
                    param=f"include.{index}",
                )
            if name != LOGPROBS:
                self._ignored.append(f"include.{name}")
        if self.max_tool_calls is not None:
            self._ignored.append("max_tool_calls")
        if self.stream_options is not None and not self.stream:
            self._ignored.append("stream_options")
        if self.background and not self.store:
            raise InvalidRequest(
                "background=true needs store=true: where it isn't kept nobody can retrieve it.",
                hint="Leave out one of them.",
                param="store",
            )
        self._check_metadata()

    def _check_metadata(self) -> None:
        if len(self.metadata) > MOST_METADATA:
            raise InvalidRequest(
                f"metadata has {len(self.metadata)} entries; at most {MOST_METADATA}.",
                hint="Send fewer.",
                param="metadata",
            )
        for key, value in self.metadata.items():
            if len(key) > LONGEST_METADATA_KEY or len(value) > LONGEST_METADATA_VALUE:
                raise InvalidRequest(
                    f"metadata has a key of {len(key)} characters with a value of {len(value)}; at most"
                    f" {LONGEST_METADATA_KEY} and {LONGEST_METADATA_VALUE}.",
                    hint="Send less.",
                    param="metadata",
                )

    def params(self) -> SamplingParams:
        return self.sampling(
            max_tokens=self.max_output_tokens, logprobs=self.logprobs, top_logprobs=self.top_logprobs or 0
        )

    def grammar(self) -> Constraint | None:
        wanted = self.text_format().response_format().constraint(self.jump, complete=self.complete is True)
        return one_grammar(super().grammar(), wanted, "text.format", "schema")
