"""A JSON schema as a document: its dialect, where its subschemas lie, and what $ref means in it.

Every keyword's form is checked here, and the older drafts' spellings (3, 4, 6, 7, 2019-09) become those of 2020-12, so
that nobody else need know of drafts. Nothing is ever fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import draft3
from palmette.runtime.grammar.schema.dialects import draft_of
from palmette.runtime.grammar.schema.keyword_forms import FORMS, MAPS, PLAIN, SINGLE, SUBSCHEMA_LISTS, check_form

MAX_DEPTH = 120
MAX_SUBSCHEMAS = 50_000
PLAIN_PATH = "/~plain"  # of what isn't said about a value but about its text


@dataclass(frozen=True, eq=False)
class Keywords:
    """What one schema object says, in the spelling of 2020-12."""

    plain: dict[str, Any] = field(default_factory=dict)
    one: dict[str, Place] = field(default_factory=dict)
    many: dict[str, list[Place]] = field(default_factory=dict)
    named: dict[str, dict[str, Place]] = field(default_factory=dict)
    order: tuple[str, ...] = ()  # keywords in the document's order


@dataclass(frozen=True)
class Place:
    """A subschema. Equal places have equal paths; `path` is a JSON pointer from the root."""

    path: str
    schema: Any = field(compare=False, repr=False)
    base: str = field(compare=False, repr=False, default="")

    @cached_property
    def shown(self) -> str:
        return f"#{self.path}"


class Document:
    """Raises GrammarError for what isn't a schema, naming the path."""

    def __init__(self, schema: Any) -> None:
        self.draft = draft_of(schema)
        undeclared = not isinstance(schema, dict) or "$schema" not in schema
        if self.draft == 3 or ((self.draft == 4 or undeclared) and draft3.speaks(schema)):
            self.draft, schema = 4, draft3.rewritten(schema, MAX_DEPTH)
        self.root = Place("", schema, _base(schema, "", self.draft))
        self._resources: dict[str, Place] = {"": self.root, self.root.base: self.root}
        self._anchors: dict[tuple[str, str], Place] = {}
        self._dynamic: dict[str, int] = {}
        self._twice: dict[tuple[str, str], GrammarError] = {}  # (base, anchor) that mean two schemas
        self._keywords: dict[str, Keywords] = {PLAIN_PATH: Keywords()}
        self.ignored: dict[str, str] = {}  # path → keyword that says nothing (unknown, or an annotation)
        self._index()

    # Reading

    def keywords(self, place: Place) -> Keywords:
        found = self._keywords.get(place.path)
        if found is None:
            found = self._keywords[place.path] = self._read(place)
        return found

    def synthesized(self, place: Place, name: str, schema: Any) -> Place:
        """A schema that isn't in the document, as a place of its own below `place`."""
        return Place(f"{place.path}/{name}", schema, place.base)

    def _read(self, place: Place) -> Keywords:
        schema = place.schema
        assert isinstance(schema, dict)
        if "$ref" in schema and self.draft <= 7:
            schema = {"$ref": schema["$ref"]}
        said = Keywords(order=tuple(schema))
        for keyword, value in schema.items():
            if keyword not in FORMS and not (keyword in ("additionalItems", "dependencies") and self.draft < 2020):
                self.ignored.setdefault(place.path, keyword)
                continue
            if keyword == "items" and isinstance(value, list):
                said.many["prefixItems"] = self._list(place, "items", value)
                if "additionalItems" in schema:
                    said.one["items"] = self._child(place, schema["additionalItems"], "additionalItems")
            elif keyword == "dependencies":
                self._read_dependencies(place, value, said)
            elif keyword in ("additionalItems", "definitions", "$defs") or (
                keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool)
            ):
                continue
            elif keyword in ("minimum", "maximum") and schema.get(_exclusive(keyword)) is True:
                said.plain[_exclusive(keyword)] = check_form(keyword, value, place.shown)
            elif keyword in SINGLE:
                said.one[keyword] = self._child(place, value, keyword)
            elif keyword in SUBSCHEMA_LISTS:
                said.many[keyword] = self._list(place, keyword, value)
            elif keyword in MAPS:
                check_form(keyword, value, place.shown)
                said.named[keyword] = {name: self._child(place, inner, keyword, name) for name, inner in value.items()}
            elif keyword in PLAIN:
                said.plain[keyword] = check_form(keyword, value, place.shown)
        return said

    def _read_dependencies(self, place: Place, value: Any, said: Keywords) -> None:
        check_form("dependencies", value, place.shown)
        required: dict[str, list[str]] = {}
        schemas: dict[str, Place] = {}
        for name, needed in value.items():
            if isinstance(needed, list):
                required[name] = needed
            elif isinstance(needed, str):
                required[name] = [needed]
            else:
                schemas[name] = self._child(place, needed, "dependencies", name)
        said.plain["dependentRequired"] = check_form("dependentRequired", required, place.shown)
        said.named["dependentSchemas"] = schemas

    def _list(self, place: Place, keyword: str, value: Any) -> list[Place]:
        check_form(keyword, value, place.shown)
        return [self._child(place, inner, keyword, str(index)) for index, inner in enumerate(value)]

    def _child(self, place: Place, schema: Any, *steps: str) -> Place:
        path = place.path + "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
        if not isinstance(schema, bool | dict):
            raise GrammarError(
                f"The schema at #{path} is {_shown(schema)}; a schema is an object, true or false.",
                hint="Correct the schema there.",
                param="json_schema",
            )
        return Place(path, schema, _base(schema, place.base, self.draft))

    def children(self, place: Place) -> Iterator[Place]:
        """Every subschema directly below, definitions among them."""
        if isinstance(place.schema, bool):
            return
        said = self.keywords(place)
        yield from said.one.values()
        for places in said.many.values():
            yield from places
        for named in said.named.values():
            yield from named.values()
        if self.draft > 7 or "$ref" not in place.schema:
            for keyword in ("$defs", "definitions"):
                defined = place.schema.get(keyword)
                if isinstance(defined, dict):
                    for name, schema in defined.items():
                        if isinstance(schema, bool | dict):  # what isn't a schema is wrong where it is referred to
                            yield self._child(place, schema, keyword, name)

    def _index(self) -> None:
        if not isinstance(self.root.schema, bool | dict):
            raise GrammarError(
                f"The schema is {_shown(self.root.schema)}; a schema is an object, true or false.",
                hint="Give an object.",
                param="json_schema",
            )
        waiting = [self.root]
        count = 0
        while waiting:
            place = waiting.pop()
            count += 1
            if count > MAX_SUBSCHEMAS:
                raise GrammarError(
                    f"The schema has more than {MAX_SUBSCHEMAS:,} subschemas.",
                    hint="Make it smaller, or use $ref for what repeats.",
                    param="json_schema",
                )
            if place.path.count("/") > 3 * MAX_DEPTH:
                raise GrammarError(
                    f"The schema is nested too deeply at {place.shown[:100]}….",
                    hint="Use $defs for what repeats.",
                    param="json_schema",
                )
            if isinstance(place.schema, dict):
                self._note_names(place)
            waiting.extend(self.children(place))

    def _note_names(self, place: Place) -> None:
        schema = place.schema
        known = self._resources.setdefault(place.base, place)
        if known is not place and _base(schema, "", self.draft) and known.schema != schema:
            self._twice.setdefault((place.base, ""), _twice(known, place, place.base))
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := schema.get(keyword), str):
                known = self._anchors.setdefault((place.base, name), place)
                if known.schema != schema:
                    self._twice.setdefault((place.base, name), _twice(known, place, name))
        if isinstance(name := schema.get("$dynamicAnchor"), str):
            self._dynamic[name] = self._dynamic.get(name, 0) + 1
        if schema.get("$recursiveAnchor") is True:
            self._dynamic["#"] = self._dynamic.get("#", 0) + 1
        identifier = schema.get(_id_keyword(self.draft))
        if isinstance(identifier, str) and identifier.startswith("#") and self.draft <= 7:
            self._anchors.setdefault((place.base, identifier[1:]), place)

    # References

    def target(self, place: Place, keyword: str, reference: str) -> Place:
        """What a $ref, $dynamicRef or $recursiveRef at `place` stands for."""
        uri, fragment = urldefrag(_join(place.base, reference))
        if keyword != "$ref":
            name = "#" if keyword == "$recursiveRef" else fragment
            if self._dynamic.get(name, 0) > 1:
                raise GrammarError(
                    f"The {keyword} {reference!r} at {place.shown} may mean one of {self._dynamic[name]} schemas: "
                    "which one depends on the way to it.",
                    hint="Use $ref, or give the anchors different names.",
                    param="json_schema",
                )
        resource = self._resources.get(uri)
        if resource is None:
            raise GrammarError(
                f"The {keyword} {reference!r} at {place.shown} is outside this schema, and nothing is fetched.",
                hint="Copy what it names into $defs.",
                param="json_schema",
            )
        fragment = unquote(fragment)
        twice = self._twice.get((uri, "")) or self._twice.get((resource.base, fragment))
        if twice is not None:
            raise twice
        if not fragment:
            return resource
        if fragment.startswith("/"):
            return self._pointed(resource, fragment, place, keyword)
        found = self._anchors.get((uri, fragment)) or self._anchors.get((resource.base, fragment))
        if found is None:
            raise GrammarError(
                f"The {keyword} {reference!r} at {place.shown} names an anchor that isn't there.",
                hint="Name an anchor of this document.",
                param="json_schema",
            )
        return found

    def _pointed(self, resource: Place, pointer: str, place: Place, keyword: str) -> Place:
        value, base, path = resource.schema, resource.base, resource.path
        for step in pointer[1:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
                value = value[int(name)]
            else:
                raise GrammarError(
                    f"The {keyword} at {place.shown} points to #{pointer}, which isn't there.",
                    hint="Point into this document.",
                    param="json_schema",
                )
            path += "/" + step.replace("~", "~0") if "~" in name and "~" not in step else "/" + step
            base = _base(value, base, self.draft)
        if not isinstance(value, bool | dict):
            raise GrammarError(
                f"The {keyword} at {place.shown} points to {_shown(value)}, which is no schema.",
                hint="Point to a schema.",
                param="json_schema",
            )
        return Place(path, value, base)


def read(text: str) -> Document:
    """The document in a JSON text. Raises GrammarError."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise GrammarError(f"The schema is not JSON: {error}.", hint="Give valid JSON.", param="json_schema") from None
    except RecursionError:
        raise GrammarError(
            "The schema is nested too deeply to be read.", hint="Nest it less, or use $ref.", param="json_schema"
        ) from None
    return Document(schema)


def _id_keyword(draft: int) -> str:
    return "id" if draft <= 4 else "$id"


def _base(schema: Any, base: str, draft: int) -> str:
    if not isinstance(schema, Mapping) or (draft <= 7 and "$ref" in schema):
        return base
    identifier = schema.get(_id_keyword(draft))
    if not isinstance(identifier, str) or identifier.startswith("#"):
        return base
    return urldefrag(_join(base, identifier))[0]


def _join(base: str, reference: str) -> str:
    if base.startswith("urn:") and reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def _twice(one: Place, other: Place, name: str) -> GrammarError:
    return GrammarError(
        f"The schemas at {one.shown} and {other.shown} both have the name {name!r}.",
        hint="Give each its own $id and $anchor.",
        param="json_schema",
    )


def _exclusive(keyword: str) -> str:
    return "exclusive" + keyword.capitalize()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
