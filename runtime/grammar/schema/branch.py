"""One way to meet a goal, while it is being worked out: what is known about the value so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import ecma
from palmette.runtime.grammar.schema.document import Document, Keywords, Place
from palmette.runtime.grammar.schema.found import finds
from palmette.runtime.grammar.schema.numerals import decimal, numeral
from palmette.runtime.grammar.schema.overlaps import Overlaps
from palmette.runtime.grammar.schema.shapes import (
    NEVER,
    PLAIN,
    ArrayShape,
    Claim,
    Contained,
    Goal,
    KeyClass,
    NamedProperty,
    NumberShape,
    ObjectShape,
    Shape,
    SimpleShape,
    StringShape,
)

TYPES = ("null", "boolean", "number", "string", "array", "object")

_COLLECTIONS = ("types", "booleans", "frames", "required", "absent", "property_names", "item_frames", "contained",
                "unevaluated", "contains_scopes", "refused", "pending", "choices", "extras", "extra_places",
                "seen")  # fmt: skip

Scope = str
"""The path of a schema with unevaluatedProperties or unevaluatedItems, whose in-place parts are watched."""


@dataclass(frozen=True)
class Pending:
    """A claim still to be worked in, the scopes that watch it, and the in-place chain that led here."""

    claim: Claim
    scopes: tuple[Scope, ...] = ()
    ancestors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Frame:
    """What one schema says about properties (or items) by name (or position), and who watches it."""

    properties: dict[str, Place]
    patterns: dict[str, Place]
    rest: Place | None
    scopes: tuple[Scope, ...]

    def applied(self, name: str, found: Callable[[str, str], bool]) -> list[Place]:
        inner = [self.properties[name]] if name in self.properties else []
        inner += [place for pattern, place in self.patterns.items() if found(pattern, name)]
        return inner or ([self.rest] if self.rest else [])


@dataclass(frozen=True)
class ItemFrame:
    prefix: list[Place]
    rest: Place | None
    scopes: tuple[Scope, ...]


@dataclass(frozen=True)
class Unevaluated:
    """The schema of what nobody has looked at, and who watches."""

    place: Place
    scopes: tuple[Scope, ...]


@dataclass(frozen=True)
class Extra:
    """Some property outside `names` and `patterns` has a value for which `claim` holds."""

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    claim: Claim


@dataclass(frozen=True)
class Option:
    """One of several ways on: claims to work in, and what is known at once."""

    pending: tuple[Pending, ...] = ()
    effect: Callable[[Branch], None] | None = None


@dataclass
class Branch:
    """Mutable; `copy` before going two ways."""

    document: Document
    types: set[str] = field(default_factory=lambda: set(TYPES))
    values: list[Any] | None = None
    booleans: set[bool] = field(default_factory=lambda: {True, False})
    number: NumberShape = field(default_factory=NumberShape)
    string: StringShape = field(default_factory=StringShape)
    frames: list[Frame] = field(default_factory=list)
    required: dict[str, None] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    on_names: dict[str, list[Claim]] = field(default_factory=dict)  # further claims on one property's value
    property_names: list[Claim] = field(default_factory=list)
    least_properties: int = 0
    most_properties: int | None = None
    item_frames: list[ItemFrame] = field(default_factory=list)
    on_items: dict[int, list[Claim]] = field(default_factory=dict)
    least_items: int = 0
    most_items: int | None = None
    contained: list[Contained] = field(default_factory=list)
    unique: bool = False
    plain: bool = False  # numbers in it are written in one way
    unevaluated: dict[tuple[str, Scope], Unevaluated] = field(default_factory=dict)
    contains_scopes: set[Scope] = field(default_factory=set)
    refused: dict[str, GrammarError] = field(default_factory=dict)  # type → why it can't be told exactly
    pending: list[Pending] = field(default_factory=list)
    choices: list[list[Option]] = field(default_factory=list)
    extras: list[Extra] = field(default_factory=list)
    extra_places: list[Place] = field(default_factory=list)
    seen: set[tuple[Claim, tuple[Scope, ...]]] = field(default_factory=set)

    def copy(self) -> Branch:
        made = replace(self)
        for name in _COLLECTIONS:
            setattr(made, name, getattr(self, name).copy())
        made.on_names = {name: list(claims) for name, claims in self.on_names.items()}
        made.on_items = {index: list(claims) for index, claims in self.on_items.items()}
        return made

    @property
    def dead(self) -> bool:
        return not self.types

    def only(self, *types: str) -> None:
        self.types &= set(types)

    def refuse(self, kind: str, keyword: str, place: Place, why: str) -> None:
        """`kind`'s values of this branch can't be told exactly."""
        self.refused.setdefault(
            kind,
            GrammarError(
                f"{keyword!r} at {place.shown} can't be enforced: {why}.",
                hint="Change the schema, or ask for best effort: then it is checked after generation.",
                param="json_schema",
            ),
        )

    # Working in the keywords of one schema that holds

    def work_in(self, said: Keywords, place: Place, scopes: tuple[Scope, ...]) -> None:
        plain = said.plain
        self._work_in_type(plain)
        if "const" in plain or "enum" in plain:
            given = [plain["const"]] if "const" in plain else plain["enum"]
            self.values = given if self.values is None else self.values
        self._work_in_numbers(plain)
        self._work_in_strings(plain, place)
        self._work_in_items(said, place, scopes)
        self._work_in_properties(said, place, scopes)

    def _work_in_type(self, plain: dict[str, Any]) -> None:
        wanted = plain.get("type")
        if wanted is None:
            return
        names = {wanted} if isinstance(wanted, str) else set(wanted)
        if "integer" in names and "number" not in names:
            names.add("number")
            self.set_integral(True)
        self.only(*names)

    def set_integral(self, integral: bool) -> None:
        if self.number.integral is (not integral):
            self.types.discard("number")
        self.number = replace(self.number, integral=integral)

    def bound_number(self, shape: NumberShape) -> None:
        self.number = shape
        low, high = shape.interval.integers()
        if shape.interval.empty or (shape.integral and low is not None and high is not None and low > high):
            self.types.discard("number")

    def _work_in_numbers(self, plain: dict[str, Any]) -> None:
        from_plain = {
            "minimum": (True, False),
            "exclusiveMinimum": (True, True),
            "maximum": (False, False),
            "exclusiveMaximum": (False, True),
        }
        for keyword, (is_low, is_open) in from_plain.items():
            if keyword in plain:
                self.limit(plain[keyword], is_low, is_open)
        if "multipleOf" in plain:
            step = numeral(decimal(plain["multipleOf"]))
            multiples = tuple(dict.fromkeys((*self.number.multiples, step)))
            self.bound_number(replace(self.number, multiples=multiples))

    def limit(self, bound: Any, is_low: bool, is_open: bool) -> None:
        exact = decimal(bound)
        interval = self.number.interval
        interval = interval.above(exact, is_open) if is_low else interval.below(exact, is_open)
        self.bound_number(replace(self.number, interval=interval))

    def set_string(self, shape: StringShape) -> None:
        self.string = shape
        if shape.impossible:
            self.types.discard("string")

    def _work_in_strings(self, plain: dict[str, Any], place: Place) -> None:
        shape = self.string
        least = max(shape.least, int(plain.get("minLength", 0)))
        most = lesser(shape.most, plain.get("maxLength"))
        patterns, names = shape.patterns, shape.formats
        if "pattern" in plain:
            patterns = tuple(dict.fromkeys((*patterns, plain["pattern"])))
        if "format" in plain:
            names = tuple(dict.fromkeys((*names, plain["format"])))
        self.set_string(replace(shape, least=least, most=most, patterns=patterns, formats=names))

    def _work_in_items(self, said: Keywords, place: Place, scopes: tuple[Scope, ...]) -> None:
        plain = said.plain
        self.limit_items(int(plain.get("minItems", 0)), plain.get("maxItems"))
        self.unique = self.unique or bool(plain.get("uniqueItems"))
        prefix = said.many.get("prefixItems", [])
        if prefix or "items" in said.one:
            self.item_frames.append(ItemFrame(prefix, said.one.get("items"), scopes))
        if "contains" in said.one:
            least, most = int(plain.get("minContains", 1)), plain.get("maxContains")
            if least > 0 or most is not None:
                goal = Goal.of([Claim(said.one["contains"])])
                self.contained.append(Contained(goal, least, None if most is None else int(most)))
            if self.document.draft >= 2020:
                self.contains_scopes.update(scopes)
        if "unevaluatedItems" in said.one:
            self.unevaluated["items", place.path] = Unevaluated(said.one["unevaluatedItems"], scopes)

    def limit_items(self, least: int, most: Any) -> None:
        self.least_items = max(self.least_items, least)
        self.most_items = lesser(self.most_items, most)
        if self.most_items is not None and self.most_items < self.least_items:
            self.types.discard("array")

    def _work_in_properties(self, said: Keywords, place: Place, scopes: tuple[Scope, ...]) -> None:
        plain, named = said.plain, said.named
        properties, patterns = named.get("properties", {}), named.get("patternProperties", {})
        if properties or patterns or "additionalProperties" in said.one:
            self.frames.append(Frame(properties, patterns, said.one.get("additionalProperties"), scopes))
        for name in plain.get("required", ()):
            self.require(name)
        self.limit_properties(int(plain.get("minProperties", 0)), plain.get("maxProperties"))
        if "propertyNames" in said.one:
            self.property_names.append(Claim(said.one["propertyNames"]))
        if "unevaluatedProperties" in said.one:
            self.unevaluated["properties", place.path] = Unevaluated(said.one["unevaluatedProperties"], scopes)

    def require(self, name: str) -> None:
        self.required[name] = None
        if name in self.absent:
            self.types.discard("object")

    def forbid(self, name: str) -> None:
        self.absent.add(name)
        if name in self.required:
            self.types.discard("object")

    def add_extra(self, extra: Extra, place: Place) -> None:
        self.extras.append(extra)
        self.extra_places.append(place)

    def claims_on(self, name: str) -> list[Claim]:
        """Claims on the property's value so far, those of patterns left out."""
        found = [Claim(frame.properties[name]) for frame in self.frames if name in frame.properties]
        return found + self.on_names.get(name, [])

    def limit_properties(self, least: int, most: Any) -> None:
        self.least_properties = max(self.least_properties, least)
        self.most_properties = lesser(self.most_properties, most)
        if self.most_properties is not None and self.most_properties < self.least_properties:
            self.types.discard("object")

    # The shapes, when nothing is pending

    def shapes(
        self, order: dict[str, int], name_holds: Callable[[Claim, str], bool], overlaps: Overlaps
    ) -> Iterator[tuple[str, Shape]]:
        """(type, shape) of what is left. `order`: where a property's name stands; `name_holds`: a claim on a name."""
        if "null" in self.types:
            yield "null", SimpleShape("null")
        if "boolean" in self.types:
            for value in sorted(self.booleans, reverse=True):
                yield "boolean", SimpleShape("true" if value else "false")
        if "number" in self.types:
            yield "number", replace(self.number, plain=self.plain) if self.plain else self.number
        if "string" in self.types:
            yield "string", self.string
        if "array" in self.types:
            yield "array", self._array()
        if "object" in self.types:
            for shape in self._with_extras(self._object(order, name_holds, overlaps)):
                yield "object", shape

    def _array(self) -> ArrayShape:
        frames = list(self.item_frames)
        for scope, place in self._unevaluated("items"):
            if scope in self.contains_scopes:
                self.refuse("array", "unevaluatedItems", place, "contains decides what is evaluated")
            watched = [frame for frame in self.item_frames if scope in frame.scopes]
            if any(frame.rest is not None for frame in watched):
                continue
            length = max([len(frame.prefix) for frame in watched], default=0)
            free = self.document.synthesized(place, "~any", True)
            frames.append(ItemFrame([free] * length, place, ()))
        length = max([len(frame.prefix) for frame in frames] + [index + 1 for index in self.on_items] + [0])
        prefix = tuple(
            self._below(chain(self._items_at(frames, index), self.on_items.get(index, ()))) for index in range(length)
        )
        rest = self._below(Claim(frame.rest) for frame in frames if frame.rest is not None)
        return ArrayShape(prefix, rest, self.least_items, self.most_items, tuple(self.contained), self.unique)

    def _below(self, claims: Iterable[Claim]) -> Goal:
        """The goal of a value inside."""
        return Goal.of([*claims, PLAIN] if self.plain else claims)

    def _unevaluated(self, kind: str) -> Iterator[tuple[Scope, Place]]:
        """Scopes whose unevaluated keyword has something left to say: none inside has looked at everything."""
        all_of_kind = [(scope, said) for (kind_, scope), said in self.unevaluated.items() if kind_ == kind]
        for scope, said in all_of_kind:
            if not any(scope in other.scopes for path, other in all_of_kind if path != scope):
                yield scope, said.place

    def _items_at(self, frames: list[ItemFrame], index: int) -> Iterator[Claim]:
        for frame in frames:
            place = frame.prefix[index] if index < len(frame.prefix) else frame.rest
            if place is not None:
                yield Claim(place)

    def _object(
        self, order: dict[str, int], name_holds: Callable[[Claim, str], bool], overlaps: Overlaps
    ) -> ObjectShape:
        frames = [*self.frames, *self._unevaluated_frames()]
        names = dict.fromkeys(chain(*(frame.properties for frame in frames), self.required, self.absent, self.on_names))
        patterns = list(dict.fromkeys(chain(*(frame.patterns for frame in frames))))
        trees = {pattern: ecma.parse(pattern) for pattern in patterns}
        named = []
        for name in sorted(names, key=lambda name: order.get(name, len(order))):
            claims = [
                Claim(place)
                for frame in frames
                for place in frame.applied(name, lambda pattern, text: finds(trees[pattern], text))
            ]
            goal = self._below([*claims, *self.on_names.get(name, ())])
            possible = name not in self.absent and not goal.never
            if possible and all(name_holds(claim, name) for claim in self.property_names):
                named.append(NamedProperty(name, name in self.required, goal))
            elif name in self.required:
                named.append(NamedProperty(name, True, NEVER))
        return ObjectShape(
            tuple(named),
            tuple(sorted(names)),
            tuple(self._classes(frames, patterns, overlaps)),
            self.least_properties,
            self.most_properties,
        )

    def _with_extras(self, shape: ObjectShape) -> list[ObjectShape]:
        """The shape once for every way to have the properties that a denied additionalProperties asks for."""
        shapes = [shape]
        for extra, place in zip(self.extras, self.extra_places, strict=True):
            if shape.classes:
                self.refuse("object", "additionalProperties", place, "its opposite can't be expressed")
                continue
            patterns = [ecma.parse(pattern) for pattern in extra.patterns]
            outside = [
                each.name
                for each in shape.named
                if each.name not in extra.names and not any(finds(pattern, each.name) for pattern in patterns)
            ]
            anything = extra.claim.place.schema is False and not extra.claim.holds
            further: list[ObjectShape] = []
            for one in shapes:
                if anything and any(each.required and each.name in outside for each in one.named):
                    further.append(one)  # it has one already
                else:
                    further += [one.having(name, extra.claim) for name in outside]
            shapes = further
        return shapes

    def _classes(self, frames: list[Frame], patterns: list[str], overlaps: Overlaps) -> Iterator[KeyClass]:
        names = Goal.of(self.property_names)
        for inside, others in overlaps.sets_of(patterns):
            claims = []
            for frame in frames:
                applied = [frame.patterns[pattern] for pattern in inside if pattern in frame.patterns]
                claims += [Claim(place) for place in applied or ([frame.rest] if frame.rest else [])]
            goal = self._below(claims)
            if not goal.never:
                yield KeyClass(inside, others, names, goal)

    def _unevaluated_frames(self) -> Iterator[Frame]:
        for scope, place in self._unevaluated("properties"):
            watched = [frame for frame in self.frames if scope in frame.scopes]
            if any(frame.rest is not None for frame in watched):
                continue
            free = self.document.synthesized(place, "~any", True)
            yield Frame(
                {name: free for frame in watched for name in frame.properties},
                {pattern: free for frame in watched for pattern in frame.patterns},
                place,
                (),
            )


def lesser(one: int | None, other: Any) -> int | None:
    if other is None:
        return one
    return int(other) if one is None else min(one, int(other))
