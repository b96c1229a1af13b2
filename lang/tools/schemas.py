"""The JSON schema of a function's parameters, and what makes its keyword arguments of a call's JSON text.

By msgspec, which knows plain types and dataclasses; by pydantic where a parameter is one of its models. For tool.py.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from palmette.runtime.errors import InvalidRequest


def signature_of(
    func: Callable[..., Any], name: str, descriptions: Mapping[str, str]
) -> tuple[dict[str, Any], Callable[[bytes], dict[str, Any]]]:
    """The JSON schema of a function's parameters, and what makes keyword arguments of JSON text."""
    hints = typing.get_type_hints(func, include_extras=True)
    fields: list[tuple[str, Any, Any]] = []
    for parameter in inspect.signature(func).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidRequest(
                f"Tool {name}: the parameter {parameter} can't be given by name.", hint="Name each parameter."
            )
        if parameter.name not in hints:
            raise InvalidRequest(
                f"Tool {name}: the parameter {parameter.name!r} has no type.",
                hint=f"Write it as in def {name}({parameter.name}: str).",
                param=parameter.name,
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields.append((parameter.name, hints[parameter.name], default))
    try:
        return _by_struct(name, fields, descriptions)
    except TypeError as error:
        problem = error
    try:
        return _by_pydantic(name, fields, descriptions)
    except Exception as error:  # pydantic has errors of many kinds here
        raise InvalidRequest(
            f"Tool {name}: its parameters have no JSON schema: {str(problem).splitlines()[0]}",
            hint="Use plain types, dataclasses or pydantic models.",
        ) from error


def _by_struct(
    name: str, fields: Sequence[tuple[str, Any, Any]], descriptions: Mapping[str, str]
) -> tuple[dict[str, Any], Callable[[bytes], dict[str, Any]]]:
    own = [
        (field, kind) + (() if default is ... else (msgspec.field(default_factory=functools.partial(_same, default)),))
        for field, kind, default in fields
    ]
    struct = msgspec.defstruct(name, own, kw_only=True, forbid_unknown_fields=True)  # type: ignore[arg-type]
    (schema,), definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    schema = definitions.pop(name)
    schema.pop("title", None)
    for field, _, default in fields:
        schema["properties"][field].pop("default", None)
        if default is not ... and isinstance(default, str | int | float | bool):
            schema["properties"][field]["default"] = default
        if field in descriptions:
            schema["properties"][field].setdefault("description", descriptions[field])
    if definitions:
        schema["$defs"] = definitions
    decoder = msgspec.json.Decoder(struct)

    def decode(data: bytes) -> dict[str, Any]:
        value = decoder.decode(data)
        return {field: getattr(value, field) for field, _, _ in fields}

    return schema, decode


def _same(value: Any) -> Any:
    return value


def hoisted(schema: Any, prefix: str, definitions: dict[str, Any]) -> Any:
    """A schema as a part of another one: its definitions go into `definitions`, under the prefix."""
    if isinstance(schema, list):
        return [hoisted(each, prefix, definitions) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "$defs":
            definitions |= {f"{prefix}.{own}": hoisted(each, prefix, definitions) for own, each in value.items()}
        elif name == "$ref" and isinstance(value, str):
            moved[name] = value.replace("#/$defs/", f"#/$defs/{prefix}.")
        else:
            moved[name] = hoisted(value, prefix, definitions)
    return moved


def _by_pydantic(
    name: str, fields: Sequence[tuple[str, Any, Any]], descriptions: Mapping[str, str]
) -> tuple[dict[str, Any], Callable[[bytes], dict[str, Any]]]:
    """Where a parameter is a pydantic model."""
    pydantic = importlib.import_module("pydantic")
    own = {
        field: (kind, pydantic.Field(default, description=descriptions.get(field))) for field, kind, default in fields
    }
    model = pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **own)

    def decode(data: bytes) -> dict[str, Any]:
        value = model.model_validate_json(data)
        return {field: getattr(value, field) for field, _, _ in fields}

    return model.model_json_schema(), decode
