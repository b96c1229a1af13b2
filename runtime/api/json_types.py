"""Types of fields whose JSON schema says more than their checks: the limits themselves are enforced elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pydantic
from pydantic import Field, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

NAMED = "x-model"  # in a schema: a reference by name, which the document turns into one

TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}}

AnyPrompt = Annotated[
    Any,
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, TOKENS,
                   {"type": "array", "items": TOKENS}]}
    ),
]  # fmt: skip
"""A text, token ids, or a list of either; told apart by surface.split_prompts."""

AnyText = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
]
AnyTokens = Annotated[Any, WithJsonSchema({"anyOf": [TOKENS, {"type": "array", "items": TOKENS}]})]


def schema(**more: Any) -> Any:
    """`Annotated[int, schema(minimum=0)]`: an int whose schema has this too. SamplingParams.check enforces it, for
    every caller in the same words."""
    return Field(json_schema_extra=more)


@dataclass(frozen=True)
class Like:
    """`Annotated[dict[str, Any], Like(Part)]`: plain JSON now, read as a Part later; its schema is Part's.

    With several models it is one of them; `listed`: a list of such.
    """

    models: tuple[type[pydantic.BaseModel], ...]
    listed: bool = False

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: pydantic.GetJsonSchemaHandler) -> JsonSchemaValue:
        schemas = [handler(model.__pydantic_core_schema__) for model in self.models]
        one = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        return {"type": "array", "items": one} if self.listed else one


def like(*models: type[pydantic.BaseModel]) -> Like:
    return Like(models)


def list_of(*models: type[pydantic.BaseModel]) -> Like:
    return Like(models, listed=True)


def listed(*names: str) -> WithJsonSchema:
    """A list of models that are defined later, by name: the route gives them to `document.operation` as `models`."""
    named = [{NAMED: name} for name in names]
    return WithJsonSchema({"type": "array", "items": named[0] if len(names) == 1 else {"anyOf": named}})
