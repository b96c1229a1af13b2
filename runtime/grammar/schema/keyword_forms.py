"""The form that each keyword's value must have: a schema that is no schema is refused, with the path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palmette.runtime.errors import GrammarError

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: Any) -> bool:
    return value in TYPES if isinstance(value, str) else _is_names(value) and all(name in TYPES for name in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


Form = tuple[str, Callable[[Any], bool]]
_COUNT: Form = ("a whole number ≥ 0", _is_count)
_NUMBER: Form = ("a number", _is_number)
_TEXT: Form = ("a string", _is_text)
_SCHEMAS: Form = ("a list of schemas", lambda value: isinstance(value, list))
_NAMED: Form = ("an object of schemas", lambda value: isinstance(value, dict))
_SCHEMA: Form = ("a schema", lambda value: isinstance(value, bool | dict))

PLAIN: dict[str, Form] = {
    "type": ("a type or a list of types", _is_type),
    "enum": ("a list", lambda value: isinstance(value, list)),
    "const": ("a value", lambda value: True),
    "multipleOf": ("a number > 0", lambda value: _is_number(value) and value > 0),
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "pattern": _TEXT,
    "format": _TEXT,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "uniqueItems": ("true or false", lambda value: isinstance(value, bool)),
    "minContains": _COUNT,
    "maxContains": _COUNT,
    "minProperties": _COUNT,
    "maxProperties": _COUNT,
    "required": ("a list of names", _is_names),
    "dependentRequired": (
        "an object of lists of names",
        lambda value: isinstance(value, dict) and all(_is_names(names) for names in value.values()),
    ),
    "$ref": _TEXT,
    "$dynamicRef": _TEXT,
    "$recursiveRef": _TEXT,
}
SINGLE: dict[str, Form] = dict.fromkeys(
    ("items", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties", "propertyNames", "not",
     "if", "then", "else"),
    _SCHEMA,
)  # fmt: skip
SUBSCHEMA_LISTS: dict[str, Form] = dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMAS)
MAPS: dict[str, Form] = dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), _NAMED)
_OLD: dict[str, Form] = {"dependencies": _NAMED, "additionalItems": _SCHEMA}

FORMS: dict[str, Form] = {**PLAIN, **SINGLE, **SUBSCHEMA_LISTS, **MAPS, "$defs": _NAMED, "definitions": _NAMED}
"""Every keyword that says something about an instance, or holds definitions."""


def check_form(keyword: str, value: Any, shown: str) -> Any:
    """`value`, if it has the keyword's form. Raises GrammarError."""
    wanted, fits = (FORMS.get(keyword) or _OLD.get(keyword) or ("a list of schemas", _SCHEMAS[1]))[:2]
    if keyword == "items":
        wanted, fits = _SCHEMAS
    if not fits(value):
        text = repr(value)
        raise GrammarError(
            f"{keyword!r} at {shown} is {text if len(text) <= 80 else text[:80] + '…'}; it must be {wanted}.",
            hint="Correct the keyword's value.",
            param="json_schema",
        )
    return value
