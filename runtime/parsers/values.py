"""Arguments of formats that aren't JSON, written as JSON: values are typed by the tool's schema where it says a type.

A parameter that can only be a string streams as it comes; others are written when they are whole. The JSON is valid for
every call that is finished. Used by the XML-like, GLM, Gemma and pythonic formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palmette.runtime.parsers.cursor import Cursor, Ended, Markers, Steps
from palmette.runtime.parsers.emitter import Writer
from palmette.runtime.parsers.json_text import clean, decode, encode
from palmette.runtime.parsers.literals import literal_json

DEEPEST = 8  # references and unions that are followed
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}

_ONLY_STRING = frozenset(["string"])

_KINDS: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}


class Schema:
    """A tool's schema, asked for the types of its parameters."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        self._root = schema or {}

    def names(self) -> list[str]:
        """The parameters, in the schema's order."""
        properties = self._resolve(self._root).get("properties")
        return list(properties) if isinstance(properties, Mapping) else []

    def kinds(self, name: str) -> frozenset[str] | None:
        """The JSON types that a parameter may have; None where the schema doesn't say."""
        root = self._resolve(self._root)
        properties = root.get("properties")
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        return self._kinds(schema if schema is not None else root.get("additionalProperties"), DEEPEST)

    def _kinds(self, schema: Any, depth: int) -> frozenset[str] | None:
        if not isinstance(schema, Mapping) or depth == 0:
            return None
        schema = self._resolve(schema)
        kind = schema.get("type")
        if isinstance(kind, str):
            return frozenset([kind.lower()])
        if isinstance(kind, list):
            return frozenset(str(one).lower() for one in kind)
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(values, list):
            return frozenset(one for value in values for one in _KINDS.get(type(value), ("string",)))
        for union in ("anyOf", "oneOf"):
            if isinstance(schema.get(union), list):
                found = [self._kinds(one, depth - 1) for one in schema[union]]
                known = [kinds for kinds in found if kinds is not None]
                return frozenset().union(*known) if known and len(known) == len(found) else None
        if isinstance(schema.get("allOf"), list):
            known = [kinds for one in schema["allOf"] if (kinds := self._kinds(one, depth - 1)) is not None]
            return frozenset.intersection(*known) if known else None
        return None

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follows a local reference (`#/$defs/…`)."""
        for _ in range(DEEPEST):
            path = schema.get("$ref")
            if not isinstance(path, str) or not path.startswith("#/"):
                break
            found: Any = self._root
            for part in path[2:].split("/"):
                found = found.get(part) if isinstance(found, Mapping) else None
            if not isinstance(found, Mapping):
                break
            schema = found
        return schema


def typed(text: str, kinds: frozenset[str] | None) -> str:
    """The JSON of a value that was written without quotes: as a type of `kinds`, else as what it looks like."""
    said = text.strip()
    said = _PYTHON_WORDS.get(said, said)
    value = decode(said)
    is_json = value is not None or said == "null"
    if kinds is not None and is_json:
        own = _KINDS.get(type(value), ("string",))
        if isinstance(value, float) and value.is_integer() and "integer" in kinds and "number" not in kinds:
            return str(int(value))
        is_json = not kinds.isdisjoint(own) and not isinstance(value, str)
        if not is_json and "string" not in kinds and not isinstance(value, str):
            return said  # of no type that was asked for, but a value
    elif kinds is None:
        is_json = is_json and not isinstance(value, str)
    elif "string" not in kinds and said[:1] in ("{", "["):
        return literal_json(said)  # as Python writes it
    return said if is_json else encode(clean(text))


class _Newlines:
    """Takes one line feed off the beginning and one off the end of a text that comes in pieces."""

    def __init__(self) -> None:
        self._begun = False
        self._held = ""

    def trim(self, text: str) -> str:
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\n")
        text = self._held + text
        self._held = "\n" if text.endswith("\n") else ""
        return text.removesuffix("\n")


class Arguments:
    """The arguments object of one call, written member by member."""

    def __init__(self, out: Writer, name: str, id: str | None = None) -> None:
        """Begins the call."""
        tool = out.tool(name)
        self._out = out
        self._lead = "{"
        self.schema = Schema(tool.schema if tool is not None else None)
        out.begin(name, id)

    def member(self, name: str, value: str) -> None:
        """`value`: JSON text; of a call that is cut off, what there is of it."""
        self._out.arguments(f"{self._lead}{encode(name)}: {value}")
        self._lead = ", "

    def begin_string(self, name: str) -> None:
        """A member that is a string, and comes in pieces."""
        self.member(name, '"')

    def more_string(self, text: str) -> None:
        self._out.arguments(encode(clean(text))[1:-1])

    def end_string(self) -> None:
        self._out.arguments('"')

    def end(self) -> None:
        self._out.arguments("{}" if self._lead == "{" else "}")
        self._out.end()

    def tagged(
        self, cursor: Cursor, name: str, ends: Markers, *, newlines: bool = False, string: bool | None = None
    ) -> Steps[str]:
        """Writes the parameter whose value is the text up to one of `ends`; returns which.

        `newlines`: one on each side belongs to the tags. `string`: whether it is one; None: the schema decides.
        """
        kinds = self.schema.kinds(name)
        trim = _Newlines().trim if newlines else str
        if string or (string is None and kinds == _ONLY_STRING):
            self.begin_string(name)
            end = yield from cursor.until(ends, lambda text: self.more_string(trim(text)))
            self.end_string()
            return end
        pieces: list[str] = []
        try:
            end = yield from cursor.until(ends, lambda text: pieces.append(trim(text)))
        except Ended:
            self.member(name, "".join(pieces))
            raise
        text = "".join(pieces)
        if string is False and decode(text.strip()) is not None:
            self.member(name, text.strip())
        else:
            self.member(name, typed(text, kinds))
        return end
