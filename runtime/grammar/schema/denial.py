"""What it means that a schema does not hold: the ways in which one of its keywords can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

from palmette.runtime.grammar.schema import formats
from palmette.runtime.grammar.schema.branch import TYPES, Branch, Extra, Option, Pending, lesser
from palmette.runtime.grammar.schema.document import Document, Keywords, Place
from palmette.runtime.grammar.schema.evaluate import canonical, type_of
from palmette.runtime.grammar.schema.numerals import decimal
from palmette.runtime.grammar.schema.shapes import Claim, Contained, Goal, StringShape

Effect = Callable[[Branch], None]


class Denial:
    """The options of one schema's denial. `ancestors`: the in-place chain that led here."""

    def __init__(self, document: Document, place: Place, ancestors: tuple[str, ...], assert_formats: bool) -> None:
        self._document = document
        self._place = place
        self._ancestors = ancestors
        self._assert_formats = assert_formats

    def options(self) -> list[Option]:
        said = self._document.keywords(self._place)
        return [
            *self._in_place(said),
            *self._general(said.plain),
            *self._numbers(said.plain),
            *self._strings(said.plain),
            *self._arrays(said),
            *self._objects(said),
        ]

    def _claim(self, place: Place, holds: bool) -> Pending:
        return Pending(Claim(place, holds), (), self._ancestors)

    def _of(self, kind: str, effect: Effect) -> Option:
        def both(branch: Branch) -> None:
            branch.only(kind)
            effect(branch)

        return Option(effect=both)

    def _refusal(self, kind: str, keyword: str, why: str = "its opposite can't be expressed") -> Option:
        return self._of(kind, lambda branch: branch.refuse(kind, keyword, self._place, why))

    def _in_place(self, said: Keywords) -> Iterator[Option]:
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in said.plain:
                target = self._document.target(self._place, keyword, said.plain[keyword])
                yield Option((self._claim(target, False),))
        for inner in said.many.get("allOf", ()):
            yield Option((self._claim(inner, False),))
        if "anyOf" in said.many:
            yield Option(tuple(self._claim(inner, False) for inner in said.many["anyOf"]))
        if "oneOf" in said.many:
            yield Option(tuple(self._claim(inner, False) for inner in said.many["oneOf"]))
            for one, other in combinations(said.many["oneOf"], 2):
                yield Option((self._claim(one, True), self._claim(other, True)))
        if "not" in said.one:
            yield Option((self._claim(said.one["not"], True),))
        for keyword, holds in (("then", True), ("else", False)):
            if "if" in said.one and keyword in said.one:
                yield Option((self._claim(said.one["if"], holds), self._claim(said.one[keyword], False)))

    def _general(self, plain: dict[str, Any]) -> Iterator[Option]:
        if "type" in plain:
            names = {plain["type"]} if isinstance(plain["type"], str) else set(plain["type"])
            others = [kind for kind in TYPES if kind not in names and not (kind == "number" and "integer" in names)]
            yield Option(effect=lambda branch: branch.only(*others))
            if "integer" in names and "number" not in names:
                yield self._of("number", lambda branch: branch.set_integral(False))
        for keyword in ("const", "enum"):
            if keyword in plain:
                yield from self._other_than([plain["const"]] if keyword == "const" else plain["enum"])

    def _other_than(self, values: list[Any]) -> Iterator[Option]:
        """Any value but these."""
        numbers = sorted({decimal(value) for value in values if type_of(value) == "number"})
        texts = tuple(value for value in values if isinstance(value, str))
        booleans = {value for value in values if isinstance(value, bool)}
        structured = [value for value in values if isinstance(value, list | dict)]

        def plain_types(branch: Branch) -> None:
            gone = {type_of(value) for value in values} - {"string", "boolean"}
            branch.only(*(kind for kind in TYPES if kind not in gone))
            branch.booleans -= booleans
            if not branch.booleans:
                branch.types.discard("boolean")
            branch.set_string(replace(branch.string, denied_texts=(*branch.string.denied_texts, *texts)))

        yield Option(effect=plain_types)
        for low, high in pairwise([None, *numbers, None]):
            if numbers:
                yield self._of("number", lambda branch, low=low, high=high: _between(branch, low, high))  # type: ignore[misc]
        for kind in ("array", "object"):
            of_kind = [value for value in structured if type_of(value) == kind]
            if of_kind:
                claims = tuple(self._claim(self._described(value), False) for value in of_kind)
                yield Option(claims, lambda branch, kind=kind: branch.only(kind))  # type: ignore[misc]

    def _described(self, value: Any) -> Place:
        """`value` as a schema that can be denied part by part."""
        return self._document.synthesized(self._place, f"~const:{canonical(value)}", description(value))

    def _numbers(self, plain: dict[str, Any]) -> Iterator[Option]:
        sides = {
            "minimum": (False, True),
            "exclusiveMinimum": (False, False),
            "maximum": (True, True),
            "exclusiveMaximum": (True, False),
        }
        for keyword, (is_low, is_open) in sides.items():
            if keyword in plain:
                bound = plain[keyword]
                yield self._of(
                    "number",
                    lambda branch, bound=bound, is_low=is_low, is_open=is_open: branch.limit(bound, is_low, is_open),  # type: ignore[misc]
                )
        if "multipleOf" in plain:
            if decimal(plain["multipleOf"]) == 1:
                yield self._of("number", lambda branch: branch.set_integral(False))
            else:
                yield self._refusal("number", "multipleOf")

    def _strings(self, plain: dict[str, Any]) -> Iterator[Option]:
        def change(made: Callable[[StringShape], StringShape]) -> Option:
            return self._of("string", lambda branch: branch.set_string(made(branch.string)))

        if plain.get("minLength", 0) > 0:
            yield change(lambda shape: replace(shape, most=lesser(shape.most, int(plain["minLength"]) - 1)))
        if "maxLength" in plain:
            yield change(lambda shape: replace(shape, least=max(shape.least, int(plain["maxLength"]) + 1)))
        if "pattern" in plain:
            yield change(lambda shape: replace(shape, denied_patterns=(*shape.denied_patterns, plain["pattern"])))
        if "format" in plain and self._assert_formats:
            if plain["format"] in formats.PATTERNS:
                yield change(lambda shape: replace(shape, denied_formats=(*shape.denied_formats, plain["format"])))
            elif plain["format"] in formats.NOT_REGULAR:
                yield self._refusal("string", "format")

    def _arrays(self, said: Keywords) -> Iterator[Option]:
        plain = said.plain
        if plain.get("minItems", 0) > 0:
            yield self._of("array", lambda branch: branch.limit_items(0, int(plain["minItems"]) - 1))
        if "maxItems" in plain:
            yield self._of("array", lambda branch: branch.limit_items(int(plain["maxItems"]) + 1, None))
        if plain.get("uniqueItems"):
            yield self._refusal("array", "uniqueItems")
        prefix = said.many.get("prefixItems", [])
        for index, inner in enumerate(prefix):
            yield self._of("array", lambda branch, index=index, inner=inner: _item_fails(branch, index, inner))  # type: ignore[misc]
        if "items" in said.one:
            inner = said.one["items"]
            if inner.schema is False:
                yield self._of("array", lambda branch: branch.limit_items(len(prefix) + 1, None))
            elif prefix:
                yield self._refusal("array", "items")
            else:
                yield self._counted(Goal.of([Claim(inner, False)]), 1, None)
        if "contains" in said.one:
            goal = Goal.of([Claim(said.one["contains"])])
            least, most = int(plain.get("minContains", 1)), plain.get("maxContains")
            if least > 0:
                yield self._counted(goal, 0, least - 1)
            if most is not None:
                yield self._counted(goal, int(most) + 1, None)
        if "unevaluatedItems" in said.one:
            yield self._refusal("array", "unevaluatedItems")

    def _counted(self, goal: Goal, least: int, most: int | None) -> Option:
        return self._of("array", lambda branch: branch.contained.append(Contained(goal, least, most)))

    def _objects(self, said: Keywords) -> Iterator[Option]:
        plain, named = said.plain, said.named
        for name in plain.get("required", ()):
            yield self._of("object", lambda branch, name=name: branch.forbid(name))  # type: ignore[misc]
        if plain.get("minProperties", 0) > 0:
            yield self._of("object", lambda branch: branch.limit_properties(0, int(plain["minProperties"]) - 1))
        if "maxProperties" in plain:
            yield self._of("object", lambda branch: branch.limit_properties(int(plain["maxProperties"]) + 1, None))
        for name, needed in plain.get("dependentRequired", {}).items():
            for other in needed:
                yield self._of("object", lambda branch, name=name, other=other: _only_first(branch, name, other))  # type: ignore[misc]
        for name, inner in named.get("properties", {}).items():
            yield self._of("object", lambda branch, name=name, inner=inner: _property_fails(branch, name, inner))  # type: ignore[misc]
        for name, inner in named.get("dependentSchemas", {}).items():
            yield Option(
                (self._claim(inner, False),),
                lambda branch, name=name: (branch.only("object"), branch.require(name))[0],  # type: ignore[misc]
            )
        if named.get("patternProperties"):
            yield self._refusal("object", "patternProperties")
        if "additionalProperties" in said.one:
            rest = said.one["additionalProperties"]
            extra = Extra(
                tuple(named.get("properties", ())), tuple(named.get("patternProperties", ())), Claim(rest, False)
            )
            if rest.schema not in (True, {}):
                yield self._of("object", lambda branch: branch.add_extra(extra, self._place))
        for keyword in ("propertyNames", "unevaluatedProperties"):
            if keyword in said.one and said.one[keyword].schema not in (True, {}):
                yield self._refusal("object", keyword)


def _between(branch: Branch, low: Any, high: Any) -> None:
    if low is not None:
        branch.limit(low, True, True)
    if high is not None:
        branch.limit(high, False, True)


def _item_fails(branch: Branch, index: int, inner: Place) -> None:
    branch.limit_items(index + 1, None)
    branch.on_items.setdefault(index, []).append(Claim(inner, False))


def _only_first(branch: Branch, name: str, other: str) -> None:
    branch.require(name)
    branch.forbid(other)


def _property_fails(branch: Branch, name: str, inner: Place) -> None:
    branch.require(name)
    branch.on_names.setdefault(name, []).append(Claim(inner, False))


def description(value: Any) -> Any:
    """The schema of exactly `value`, by its parts."""
    if isinstance(value, list):
        return {
            "type": "array",
            "prefixItems": [description(item) for item in value],
            "minItems": len(value),
            "maxItems": len(value),
        }
    if isinstance(value, dict):
        return {
            "type": "object",
            "properties": {name: description(inner) for name, inner in value.items()},
            "required": list(value),
            "maxProperties": len(value),
        }
    return {"const": value}
