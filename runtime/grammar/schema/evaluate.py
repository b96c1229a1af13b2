"""Whether a value is valid under a schema: the standard's meaning, evaluated.

Used to filter enumerations while compiling, and for `validate` after a best-effort generation. It reads the same
Document as the compiler, and the tests hold it against the standard's own test suite.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import ecma, formats
from palmette.runtime.grammar.schema.document import Document, Keywords, Place
from palmette.runtime.grammar.schema.found import finds
from palmette.runtime.grammar.schema.numerals import decimal, numeral

MAX_DEPTH = 200  # schemas within schemas, in place or below
TOO_DEEP = f"a depth that can be judged ({MAX_DEPTH} schemas within one another)"


@dataclass(frozen=True)
class Fault:
    """Why a value isn't valid: where in the value, and which keyword where in the schema."""

    instance_path: str
    keyword: str
    schema_path: str


@dataclass
class Evaluated:
    """What subschemas have looked at in the value at hand."""

    names: set[str] = field(default_factory=set)
    indices: set[int] = field(default_factory=set)

    def add(self, other: Evaluated) -> None:
        self.names |= other.names
        self.indices |= other.indices


def canonical(value: Any) -> str:
    """Equal texts for values that are equal in JSON's sense (1 and 1.0 are; true and 1 aren't)."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int | float):
        return numeral(decimal(value))
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    return "{" + ",".join(f"{json.dumps(name)}:{canonical(value[name])}" for name in sorted(value)) + "}"


def type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def is_integral(value: Any) -> bool:
    return isinstance(value, int) or value == value // 1


class Evaluator:
    """`assert_formats`: a format that isn't met makes a value invalid (otherwise it is an annotation)."""

    def __init__(self, document: Document, *, assert_formats: bool = True) -> None:
        self._document = document
        self._assert_formats = assert_formats
        self._patterns: dict[str, ecma.Node] = {}
        self._enums: dict[int, frozenset[str]] = {}
        self._depth = 0
        self._skipped: frozenset[str] = frozenset()

    def fault(self, place: Place, value: Any) -> Fault | None:
        """The first fault, or None for a valid value. Raises GrammarError for a recursion without end."""
        try:
            return self._check(place, value, "", Evaluated())
        except RecursionError:
            raise self._endless(place) from None

    def _endless(self, place: Place) -> GrammarError:
        return GrammarError(
            f"The schema at {place.shown} refers to itself without end.",
            hint="Give the recursion a way out.",
            param="json_schema",
        )

    def holds(self, place: Place, value: Any) -> bool:
        return self.fault(place, value) is None

    def holds_without(self, place: Place, value: Any, skipped: frozenset[str]) -> bool:
        """The same without the oneOf at the paths `skipped`, where that lets more through: never fewer values hold."""
        self._skipped = skipped
        try:
            return self.holds(place, value)
        finally:
            self._skipped = frozenset()

    def _exactly(self, place: Place, value: Any, where: str, seen: Evaluated) -> bool:
        """Whether it holds, where a superset would be wrong."""
        skipped, self._skipped = self._skipped, frozenset()
        try:
            return self._check(place, value, where, seen) is None
        finally:
            self._skipped = skipped

    def _check(self, place: Place, value: Any, where: str, seen: Evaluated) -> Fault | None:
        if isinstance(place.schema, bool):
            return None if place.schema else Fault(where, "false", place.shown)
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise self._endless(place)
            said = self._document.keywords(place)
            mine = Evaluated()
            for keyword in self._checks(said, value, place, where, mine):
                if isinstance(keyword, Fault):
                    return keyword
                return Fault(where, keyword, place.shown)
            seen.add(mine)
            return None
        finally:
            self._depth -= 1

    def _checks(self, said: Keywords, value: Any, place: Place, where: str, seen: Evaluated) -> Iterator[str | Fault]:
        """Keywords that aren't met, or faults deeper down."""
        yield from self._general(said.plain, value)
        yield from self._in_place(said, place, value, where, seen)
        kind = type_of(value)
        if kind == "string":
            yield from self._string(said.plain, value)
        elif kind == "number":
            yield from _number(said.plain, value)
        elif kind == "array":
            yield from self._array(said, value, where, seen)
        elif kind == "object":
            yield from self._object(said, place, value, where, seen)

    def _general(self, plain: dict[str, Any], value: Any) -> Iterator[str]:
        if "type" in plain:
            wanted = [plain["type"]] if isinstance(plain["type"], str) else plain["type"]
            kind = type_of(value)
            if kind not in wanted and not (kind == "number" and "integer" in wanted and is_integral(value)):
                yield "type"
        if "const" in plain and canonical(value) != canonical(plain["const"]):
            yield "const"
        if "enum" in plain and canonical(value) not in self._enumerated(plain["enum"]):
            yield "enum"

    def _enumerated(self, values: list[Any]) -> frozenset[str]:
        """Their canonical texts. The document keeps the list alive, so its identity names it."""
        found = self._enums.get(id(values))
        if found is None:
            found = self._enums[id(values)] = frozenset(map(canonical, values))
        return found

    def _in_place(self, said: Keywords, place: Place, value: Any, where: str, seen: Evaluated) -> Iterator[str | Fault]:
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in said.plain:
                target = self._document.target(place, keyword, said.plain[keyword])
                if fault := self._check(target, value, where, seen):
                    yield fault
        for inner in said.many.get("allOf", ()):
            if fault := self._check(inner, value, where, seen):
                yield fault
        if "anyOf" in said.many:  # all of them, since each that holds looks at properties
            holding = [self._check(inner, value, where, seen) is None for inner in said.many["anyOf"]]
            if not any(holding):
                yield "anyOf"
        if "oneOf" in said.many and place.path not in self._skipped:
            holding = [self._exactly(inner, value, where, seen) for inner in said.many["oneOf"]]
            if sum(holding) != 1:
                yield "oneOf"
        if "not" in said.one and self._exactly(said.one["not"], value, where, Evaluated()):
            yield "not"
        if "if" in said.one:
            branch = said.one.get("then" if self._exactly(said.one["if"], value, where, seen) else "else")
            if branch is not None and (fault := self._check(branch, value, where, seen)):
                yield fault
        if isinstance(value, dict):
            for name, inner in said.named.get("dependentSchemas", {}).items():
                if name in value and (fault := self._check(inner, value, where, seen)):
                    yield fault

    def _string(self, plain: dict[str, Any], value: str) -> Iterator[str]:
        if len(value) < plain.get("minLength", 0):
            yield "minLength"
        if len(value) > plain.get("maxLength", len(value)):
            yield "maxLength"
        if "pattern" in plain and not finds(self._pattern(plain["pattern"]), value):
            yield "pattern"
        name = plain.get("format")
        if self._assert_formats and name in formats.PATTERNS and not finds(formats.tree(name), value):
            yield "format"

    def _pattern(self, pattern: str) -> ecma.Node:
        if pattern not in self._patterns:
            self._patterns[pattern] = ecma.parse(pattern)
        return self._patterns[pattern]

    def _array(self, said: Keywords, value: list[Any], where: str, seen: Evaluated) -> Iterator[str | Fault]:
        plain = said.plain
        if len(value) < plain.get("minItems", 0):
            yield "minItems"
        if len(value) > plain.get("maxItems", len(value)):
            yield "maxItems"
        if plain.get("uniqueItems") and len(set(map(canonical, value))) < len(value):
            yield "uniqueItems"
        prefix = said.many.get("prefixItems", [])
        rest = said.one.get("items")
        for index, item in enumerate(value):
            inner = prefix[index] if index < len(prefix) else rest
            if inner is not None:
                seen.indices.add(index)
                if fault := self._check(inner, item, f"{where}/{index}", Evaluated()):
                    yield fault
        if "contains" in said.one:
            inside = [
                i for i, item in enumerate(value) if self._exactly(said.one["contains"], item, where, Evaluated())
            ]
            if len(inside) < plain.get("minContains", 1):
                yield "contains"
            if len(inside) > plain.get("maxContains", len(value)):
                yield "maxContains"
            if self._document.draft >= 2020:
                seen.indices.update(inside)
        if "unevaluatedItems" in said.one and not self._skipped:
            for index, item in enumerate(value):
                if index not in seen.indices:
                    if self._check(said.one["unevaluatedItems"], item, f"{where}/{index}", Evaluated()):
                        yield Fault(f"{where}/{index}", "unevaluatedItems", said.one["unevaluatedItems"].shown)
                    seen.indices.add(index)

    def _object(
        self, said: Keywords, place: Place, value: dict[str, Any], where: str, seen: Evaluated
    ) -> Iterator[str | Fault]:
        plain, named = said.plain, said.named
        if any(name not in value for name in plain.get("required", ())):
            yield "required"
        if len(value) < plain.get("minProperties", 0):
            yield "minProperties"
        if len(value) > plain.get("maxProperties", len(value)):
            yield "maxProperties"
        for name, needed in plain.get("dependentRequired", {}).items():
            if name in value and any(other not in value for other in needed):
                yield "dependentRequired"
        for name in value:
            if "propertyNames" in said.one and self._check(said.one["propertyNames"], name, where, Evaluated()):
                yield "propertyNames"
        for name, inner_value in value.items():
            applied = self._applied(named, name)
            if not applied and "additionalProperties" in said.one:
                applied = [said.one["additionalProperties"]]
            for inner in applied:
                if fault := self._check(inner, inner_value, f"{where}/{name}", Evaluated()):
                    yield fault
            if applied:
                seen.names.add(name)
        if "unevaluatedProperties" in said.one and not self._skipped:
            for name in value:
                if name not in seen.names:
                    if self._check(said.one["unevaluatedProperties"], value[name], f"{where}/{name}", Evaluated()):
                        yield Fault(f"{where}/{name}", "unevaluatedProperties", place.shown)
                    seen.names.add(name)

    def _applied(self, named: dict[str, dict[str, Place]], name: str) -> list[Place]:
        found = [named["properties"][name]] if name in named.get("properties", {}) else []
        for pattern, inner in named.get("patternProperties", {}).items():
            if finds(self._pattern(pattern), name):
                found.append(inner)
        return found


def _number(plain: dict[str, Any], value: float) -> Iterator[str]:
    exact = decimal(value)
    bounds: dict[str, Callable[[Any], bool]] = {
        "minimum": lambda bound: exact >= bound,
        "maximum": lambda bound: exact <= bound,
        "exclusiveMinimum": lambda bound: exact > bound,
        "exclusiveMaximum": lambda bound: exact < bound,
    }
    for keyword, holds in bounds.items():
        if keyword in plain and not holds(decimal(plain[keyword])):
            yield keyword
    if "multipleOf" in plain:
        numerator, denominator = exact.as_integer_ratio()
        step_numerator, step_denominator = decimal(plain["multipleOf"]).as_integer_ratio()
        if (numerator * step_denominator) % (denominator * step_numerator):
            yield "multipleOf"
