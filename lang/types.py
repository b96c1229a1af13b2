"""Outputs of a type: what the model may write (a grammar), and how the text becomes a value.

One entry a kind of type. Knows nothing of states or backends; `gen(type=…)` asks for an OutputType, the interpreter
calls its `parse`.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import enum
import functools
import importlib
import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from palmette.runtime.errors import InvalidRequest, PalmetteError
from palmette.runtime.messages.grammar import Constraint, constraint


class NotOfType(PalmetteError):
    """An output that its type can't be made of: cut off, or refused by the type's own checks."""


@dataclass(frozen=True, slots=True)
class OutputType:
    """`parse` makes the value of the whole text; it raises ValueError where that can't be.

    `constraint` holds the text to the type; `behind_space` where a space stands before it already. (Elsewhere the text
    may begin with one, since the tokens of words do.)
    """

    name: str
    parse: Callable[[str], Any]
    constraint: Constraint | None = None
    behind_space: Constraint | None = None
    stop_regex: tuple[str, ...] = ()  # what ends the output, where its grammar lets the model go on

    def value(self, text: str, *, cut_off: bool = False) -> Any:
        """Raises NotOfType."""
        try:
            return self.parse(text)
        except ValueError as error:
            hint = "Raise max_tokens, so that the output can end." if cut_off else "Try again, or loosen the type."
            raise NotOfType(f"{text!r:.200} is no {self.name}: {error}.", hint=hint) from error


# A number ends where the model goes on with something else; what follows is a stop, so it is not kept. Ending it by the
# end of the text alone would bend the odds: after "12" a model expects words, and would be left with more digits.
_INT = r"-?(0|[1-9][0-9]{0,17})"
_INT_ENDS = (r"[^0-9 ,\-]", r" [^0-9\-]")
_FLOAT = r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?"
_FLOAT_ENDS = (r"[^0-9 ,.\-]", r" [^0-9\-]", r"\.[^0-9]")
_YEAR = r"[1-9][0-9]{3}"
_LEAP_YEAR = r"([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)"
_DATE = (
    rf"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    rf"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_DATETIME = f"{_DATE}[T ]{_TIME}"
_BOOL = "[Tt]rue|[Ff]alse"


def _scalar(name: str, parse: Callable[[str], Any], pattern: str, ends: tuple[str, ...] = ()) -> OutputType:
    if ends:
        pattern = rf"{pattern}(({'|'.join(ends)})(.|\n)*)?"
    spaced = constraint(regex=f" ?({pattern})", complete=True)
    return OutputType(name, parse, spaced, constraint(regex=pattern, complete=True), ends)


def _bool(text: str) -> bool:
    if (word := text.strip().lower()) not in ("true", "false"):
        raise ValueError("it is neither True nor False")
    return word == "true"


_SCALARS: dict[type, OutputType] = {
    int: _scalar("int", int, _INT, _INT_ENDS),
    float: _scalar("float", float, _FLOAT, _FLOAT_ENDS),
    bool: _scalar("bool", _bool, _BOOL),
    str: OutputType("str", str),
    datetime.date: _scalar("date", lambda text: datetime.date.fromisoformat(text.strip()), _DATE),
    datetime.time: _scalar("time", lambda text: datetime.time.fromisoformat(text.strip()), _TIME),
    datetime.datetime: _scalar("datetime", lambda text: datetime.datetime.fromisoformat(text.strip()), _DATETIME),
}
# What ends a number must not be in None or null, nor begin them behind a space: they would be stopped short.
_OR_NONE: dict[type, tuple[str, tuple[str, ...]]] = {
    int: (_INT, (r"[^0-9 ,\-Nonelu]", r" [^0-9\-Nn]")),
    float: (_FLOAT, (r"[^0-9 ,.\-Nonelu]", r" [^0-9\-Nn]", r"\.[^0-9]")),
    bool: (_BOOL, ()),
    datetime.date: (_DATE, ()),
    datetime.time: (_TIME, ()),
    datetime.datetime: (_DATETIME, ()),
}
"""Scalars that a union with None may be of, and how they are written."""
_BY_NAME = {output.name: output for output in _SCALARS.values()}


def output_type(given: Any) -> OutputType:
    """The output type of a Python type, or of a scalar's name. Raises InvalidRequest for what is neither.

    int, float, bool, str, date, time, datetime; such but str, or None (Optional[int]); an Enum or a Literal: one
    of its values; dataclasses, pydantic models, TypedDicts, NamedTuples, dict, list, unions of such and whatever else
    has a JSON schema: JSON text, parsed.
    """
    if isinstance(given, OutputType):
        return given
    if isinstance(given, str):
        if given in _BY_NAME:
            return _BY_NAME[given]
        raise InvalidRequest(f"type={given!r} is not the name of a type.", hint=_named(given), param="type")
    try:
        return _of_type(given)
    except TypeError:  # not hashable, so not cached
        _check_type(given)
        return _of_type.__wrapped__(given)


def _named(given: str) -> str:
    """What may have been meant by a name that is no scalar's."""
    if re.match(r"\w+\s*[\[|]", given) or given in ("dict", "list", "tuple", "set"):
        return f"Give the type itself, without quotes: type={given}."
    near = difflib.get_close_matches(given, [*_BY_NAME, "integer", "string", "boolean"], n=1)
    known = {"integer": "int", "string": "str", "boolean": "bool"}
    return f"Did you mean {known.get(near[0], near[0])!r}?" if near else f"Names are {', '.join(_BY_NAME)}."


def _check_type(given: Any) -> None:
    """Raises InvalidRequest for what is written as if it were a type."""
    hint = ""
    if isinstance(given, list):
        inner = ", ".join(getattr(each, "__name__", repr(each)) for each in given) or "str"
        hint = f"Write list[{inner}]." if len(given) < 2 else f"Write tuple[{inner}], or a dataclass."
    elif isinstance(given, dict):
        hint = "Make it a TypedDict or a dataclass; of a JSON schema, json_schema= takes it."
    elif isinstance(given, set | tuple | int | float | bool):
        hint = "Write a type: int, list[str], a dataclass, Literal[…] of fixed values."
    elif given in (bytes, bytearray, complex, memoryview):
        hint = "Models write text: use str, and make it of that."
    else:
        return
    raise InvalidRequest(f"type={given!r} is no type that a model can write.", hint=hint, param="type")


@functools.lru_cache(maxsize=256)
def _of_type(given: Any) -> OutputType:
    _check_type(given)
    if given in _SCALARS:
        return _SCALARS[given]
    if get_origin(given) in (Union, types.UnionType):
        inner = [each for each in get_args(given) if each is not type(None)]
        if len(inner) == 1 < len(get_args(given)) and inner[0] in _OR_NONE:
            return _or_none(inner[0])
    if get_origin(given) is Literal:
        return _one_of(f"Literal{list(get_args(given))}", {str(value): value for value in get_args(given)})
    if isinstance(given, type) and issubclass(given, enum.Enum):
        return _one_of(given.__name__, {str(member.value): member for member in given})
    return _json(given)


def _or_none(given: type) -> OutputType:
    """A scalar, or None: Optional[int]."""
    scalar = _SCALARS[given]

    def parse(text: str) -> Any:
        return None if text.strip().lower() in ("none", "null") else scalar.parse(text)

    pattern, ends = _OR_NONE[given]
    return _scalar(f"{scalar.name} or None", parse, f"({pattern}|None|null)", ends)


def _one_of(name: str, values: Mapping[str, Any]) -> OutputType:
    """One of the texts, with a space before it or without: words' tokens begin with one."""
    if not values or not all(values):
        raise InvalidRequest(f"type={name} has no values, or an empty one.", param="type")
    stripped = {text.strip(): value for text, value in values.items()}
    spaced = constraint(choices=[*values, *(f" {text}" for text in values)], complete=True)

    def parse(text: str) -> Any:
        if text.strip() not in stripped:
            raise ValueError(f"its values are {', '.join(map(repr, values))}")
        return stripped[text.strip()]

    return OutputType(name, parse, spaced, constraint(choices=list(values), complete=True))


def _json(given: Any) -> OutputType:
    name = getattr(given, "__name__", str(given))
    schema, parse = _schema_and_parser(given, name)
    return OutputType(name, parse, constraint(json_schema=_closed(schema), complete=True))


def _schema_and_parser(given: Any, name: str) -> tuple[dict[str, Any], Callable[[str], Any]]:
    validate = getattr(given, "model_validate_json", None)  # pydantic's models know how themselves
    if isinstance(given, type) and callable(validate):
        return given.model_json_schema(), validate  # type: ignore[attr-defined]
    if not (isinstance(given, type) and hasattr(given, "__pydantic_validator__")):
        try:
            return _in_order(msgspec.json.schema(given), given), msgspec.json.Decoder(given).decode
        except (TypeError, NameError) as error:
            problem: Exception = error
    adapter = _pydantic_adapter()
    if adapter is not None:
        try:
            known = adapter(given)
            return known.json_schema(), known.validate_json
        except Exception as error:  # pydantic has errors of many kinds here; all say why
            problem = error
    raise InvalidRequest(
        f"type={given!r} has no JSON schema: {str(problem).splitlines()[0]}",
        hint=f"Give a scalar ({', '.join(_BY_NAME)}), an Enum, a Literal, a dataclass or a pydantic model.",
        param="type",
    )


def _in_order(schema: dict[str, Any], given: Any) -> dict[str, Any]:
    """The schema with the fields of TypedDicts as they are declared, which is the order that they are written in."""
    for name, fields in _typed_dicts(given, {}).items():
        for each in (schema, schema.get("$defs", {}).get(name, {})):
            properties = each.get("properties", {})
            if each.get("title") == name and set(properties) == set(fields):
                each["properties"] = {field: properties[field] for field in fields}
                if "required" in each:
                    each["required"] = [field for field in fields if field in each["required"]]
    return schema


def _typed_dicts(given: Any, found: dict[str, list[str]]) -> dict[str, list[str]]:
    """The fields of each TypedDict within a type, in their order."""
    inner = list(get_args(given))
    if is_typeddict(given) and given.__name__ not in found:
        hints = get_type_hints(given)
        found[given.__name__] = list(hints)
        inner += hints.values()
    elif dataclasses.is_dataclass(given):
        name = f"dataclass {getattr(given, '__name__', given)}"
        if name not in found:
            found[name] = []
            inner += get_type_hints(given).values()
    for each in inner:
        _typed_dicts(each, found)
    return found


def _pydantic_adapter() -> Any:
    """pydantic's TypeAdapter; None where it isn't installed."""
    try:
        return importlib.import_module("pydantic").TypeAdapter
    except ImportError:
        return None


def _closed(schema: Any) -> Any:
    """The schema with objects that say nothing of further properties closed: a model would make them up."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: value if name in ("enum", "const", "default") else _closed(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def from_schema(schema: Mapping[str, Any] | str, name: str = "JSON") -> OutputType:
    """JSON text that follows `schema`, parsed: what a tool's arguments are."""
    return OutputType(name, json.loads, constraint(json_schema=schema, complete=True))
