"""Fields that OpenAI's completions and chat completions share, with the extensions of this server."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.json_types import schema
from palmette.runtime.api.limits import MOST_OUTPUTS
from palmette.runtime.api.sampling_fields import SamplingFields, one_grammar
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint, GrammarSource, Jump, as_json


class StreamOptions(Body):
    include_usage: bool = False
    """A last chunk without choices has the usage."""
    include_obfuscation: bool = False
    """Accepted: nothing is ever padded here."""


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
            return _json({"type": "object"}, {}, jump, complete=complete)
        if self.json_schema is None:
            raise InvalidRequest(
                "response_format has the type 'json_schema' and no json_schema.",
                hint='Give {"type": "json_schema", "json_schema": {"name": …, "schema": …}}.',
                param="response_format.json_schema",
            )
        options = {"best_effort": True} if self.json_schema.strict is False else {}
        return _json(self.json_schema.schema_, options, jump, complete=complete)


def _json(schema: dict[str, Any] | bool, options: dict[str, Any], jump: Jump, *, complete: bool) -> Constraint:
    text = as_json(schema, "response_format.json_schema.schema")
    return Constraint(
        grammar=GrammarSource(kind="json_schema", text=text, options=options), jump=jump, complete=complete
    )


class OpenAIFields(SamplingFields, SchedulingFields):
    model: str = ""
    """One of the served names; the served model where it is left out."""
    n: Annotated[int, schema(minimum=1, maximum=MOST_OUTPUTS)] = 1
    """Outputs of each prompt."""
    stream: bool = False
    """Send the output as server-sent events, as it comes."""
    stream_options: StreamOptions | None = None
    """What a stream holds besides; no effect without one."""
    response_format: ResponseFormat | None = None
    """Free text, any JSON object, or JSON that meets a schema."""

    def grammar(self) -> Constraint | None:
        wanted = None
        if self.response_format is not None:
            wanted = self.response_format.constraint(self.jump, complete=self.complete is True)
        return one_grammar(super().grammar(), wanted, "response_format", "json_schema.schema")

    @property
    def headers(self) -> dict[str, str]:
        if self.stream_options is not None and not self.stream and "stream_options" not in self._ignored:
            self._ignored.append("stream_options")
        return super().headers

    unsupported: ClassVar[dict[str, str]] = {"lora_path": "adapters are not built yet"}
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
