"""Draft 3 in the spelling of draft 4.

There `required` stands with the property, a type may be a schema, and `disallow`, `extends` and `divisibleBy` have
other names now. Paths of errors are those of the rewritten schema. Called by document.py.
"""

from __future__ import annotations

from typing import Any

_SINGLE = ("items", "additionalItems", "additionalProperties", "not")
_LISTS = ("allOf", "anyOf", "oneOf")
_NAMED = ("properties", "patternProperties", "definitions", "dependencies")
_FORMATS = {"ip-address": "ipv4", "host-name": "hostname"}
_TIME = "^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]$"


def speaks(schema: Any) -> bool:
    """Whether there is a form in the schema that draft 3 alone gives a meaning."""
    open_ = [schema]
    while open_:
        given = open_.pop()
        if isinstance(given, list):
            open_ += given
        elif isinstance(given, dict):
            if isinstance(given.get("required"), bool) or given.get("type") == "any":
                return True
            open_ += [given[keyword] for keyword in (*_SINGLE, *_LISTS, "extends") if keyword in given]
            named = [given[keyword] for keyword in _NAMED if isinstance(given.get(keyword), dict)]
            open_ += [each for inner in named for each in inner.values()]
    return False


def rewritten(schema: Any, levels: int) -> Any:
    """The same schema in draft 4, so many levels deep. What has no form of draft 3, and what lies deeper, is left as it
    is, for those who check forms and depth."""
    if levels < 0:
        return schema
    if isinstance(schema, list):
        return [rewritten(each, levels - 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {keyword: _value(keyword, value, levels) for keyword, value in schema.items()}
    together: list[Any] = list(made["allOf"]) if isinstance(made.get("allOf"), list) else []
    if "divisibleBy" in made:
        made["multipleOf"] = made.pop("divisibleBy")
    if "type" in made:
        either = _either(made.pop("type"), levels)
        if "type" in either:
            made["type"] = either["type"]
        elif either:
            together.append(either)
    if "disallow" in made:
        together.append({"not": _either(made.pop("disallow"), levels)})
    if "extends" in made:
        bases = made.pop("extends")
        together += bases if isinstance(bases, list) else [bases]
    if isinstance(made.get("format"), str):
        if made["format"] == "time":
            together.append({"pattern": _TIME})
            del made["format"]
        else:
            made["format"] = _FORMATS.get(made["format"], made["format"])
    if isinstance(made.get("required"), bool):  # of a property: what holds it has it among its `required`
        del made["required"]
    required = _required(schema.get("properties"))
    if required:
        made["required"] = [*(made["required"] if isinstance(made.get("required"), list) else []), *required]
    if together:
        made["allOf"] = together
    return made


def _value(keyword: str, value: Any, levels: int) -> Any:
    if keyword in (*_SINGLE, *_LISTS, "extends"):
        return rewritten(value, levels - 1)
    if keyword in _NAMED and isinstance(value, dict):
        return {name: rewritten(each, levels - 1) if isinstance(each, dict) else each for name, each in value.items()}
    return value


def _required(properties: Any) -> list[str]:
    if not isinstance(properties, dict):
        return []
    return [name for name, inner in properties.items() if isinstance(inner, dict) and inner.get("required") is True]


def _either(said: Any, levels: int) -> dict[str, Any]:
    """The schema of what has one of these types, some of which may be schemas."""
    union = said if isinstance(said, list) else [said]
    if "any" in union:
        return {}
    if not any(isinstance(each, dict) for each in union):
        return {"type": said}
    return {"anyOf": [rewritten(each, levels - 1) if isinstance(each, dict) else {"type": each} for each in union]}
