"""Fields that OpenAI's completions and chat completions share, with the extensions of this server."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.sampling_fields import SamplingFields
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint, GrammarSource, Jump, as_json


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
