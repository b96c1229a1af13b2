"""OpenAI's request bodies for completions and chat completions, with the extensions of this server."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.sampling_fields import SamplingFields
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint, GrammarSource, Jump, as_json
from palmette.runtime.messages.sampling import MAX_TOP_LOGPROBS

TOOLS = "tool calls are not built yet"


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False  # nothing is ever padded here


class JsonSchemaFormat(Body):
    """`strict` false: what can't be enforced is judged at the end (an error, if it isn't met) instead of refused."""

    name: str = ""
    description: str | None = None
    schema_: dict[str, Any] | bool = Field(default_factory=dict, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchemaFormat | None = None

    def constraint(self, jump: Jump, *, complete: bool) -> Constraint | None:
        if self.type == "text":
            return None
        if self.type == "json_object":
            return _schema({"type": "object"}, {}, jump, complete=complete)
        if self.json_schema is None:
            raise InvalidRequest(
                "response_format has the type 'json_schema' and no json_schema.",
                hint='Give {"type": "json_schema", "json_schema": {"name": …, "schema": …}}.',
                param="response_format.json_schema",
            )
        options = {"best_effort": True} if self.json_schema.strict is False else {}
        return _schema(self.json_schema.schema_, options, jump, complete=complete)


def _schema(schema: dict[str, Any] | bool, options: dict[str, Any], jump: Jump, *, complete: bool) -> Constraint:
    text = as_json(schema, "response_format.json_schema.schema")
    return Constraint(
        grammar=GrammarSource(kind="json_schema", text=text, options=options), jump=jump, complete=complete
    )


class OpenAIFields(SamplingFields, SchedulingFields):
    model: str = ""
    n: int = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None

    def grammar(self) -> Constraint | None:
        named = super().grammar()
        wanted = None
        if self.response_format is not None:
            wanted = self.response_format.constraint(self.jump, complete=self.complete)
        if named is not None and wanted is not None:
            raise InvalidRequest(
                f"response_format and {named.grammar.kind} were given together; an output follows one grammar.",
                hint="Give one of them.",
                param="response_format",
            )
        return named or wanted

    without_effect: ClassVar[frozenset[str]] = frozenset(
        {
            "metadata",
            "store",
            "service_tier",
            "prompt_cache_key",
            "safety_identifier",
            "prompt_cache_retention",
        }
    )


class CompletionBody(OpenAIFields):
    prompt: Any = None  # str, list of str, token ids, or list of token ids; checked by prompts_of
    max_tokens: int | None = None  # OpenAI's default is 16
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)

    unsupported: ClassVar[dict[str, str]] = {"suffix": "the model fills no gaps"}


class ChatBody(OpenAIFields):
    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None

    unsupported: ClassVar[dict[str, str]] = {
        "tools": TOOLS,
        "tool_choice": TOOLS,
        "functions": TOOLS,
        "function_call": TOOLS,
        "audio": "the model is text only",
        "prediction": "predicted outputs are not built yet",
        "web_search_options": "there is no web search here",
        "reasoning_effort": "the model has no reasoning levels",
        "verbosity": "the model has no verbosity levels",
    }
    without_effect: ClassVar[frozenset[str]] = OpenAIFields.without_effect | {"parallel_tool_calls", "modalities"}


class ChatMessage(Body):
    role: str
    content: Any = ""  # str, or a list of content parts of type text

    unsupported: ClassVar[dict[str, str]] = {
        "tool_calls": TOOLS,
        "tool_call_id": TOOLS,
        "function_call": TOOLS,
        "audio": "the model is text only",
        "annotations": "the model is text only",
        "refusal": "the model has no refusal field",
    }
    without_effect: ClassVar[frozenset[str]] = frozenset({"name"})


class TextPart(Body):
    type: str
    text: str = ""
