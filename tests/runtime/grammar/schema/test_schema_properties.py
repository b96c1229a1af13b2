"""Random schemas and instances, judged by the package jsonschema; and what is generated from them."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from schema_cases import generate, schema_grammar

from palmette.runtime.errors import GrammarError

NAMES = ("a", "b", "ab", "é")
names = st.sampled_from(NAMES)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, -1.25, 2.0]),
    st.sampled_from(["", "a", "ab", "é😀", "b1"]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)
PATTERNS = ("^a", "b$", "^[a-z]*$", "1", "^(a|é)", "^(?!b)", "a|^$")


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with any one or two of the fields."""
    return st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=2, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: fields[name] for name in chosen})
    )


def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    objects = st.dictionaries(names, inner, min_size=1, max_size=3)
    return st.one_of(
        some(
            properties=objects,
            required=st.lists(names, unique=True, max_size=2),
            additionalProperties=inner,
            patternProperties=st.dictionaries(st.sampled_from(PATTERNS), inner, min_size=1, max_size=2),
            propertyNames=inner,
            minProperties=st.integers(0, 2),
            maxProperties=st.integers(0, 3),
            dependentRequired=st.dictionaries(names, st.lists(names, unique=True, max_size=2), max_size=2),
            dependentSchemas=objects,
            unevaluatedProperties=inner,
        ).map(lambda schema: {"type": "object", **schema}),
        some(
            items=inner,
            prefixItems=lists,
            contains=inner,
            minContains=st.integers(0, 2),
            maxContains=st.integers(0, 2),
            minItems=st.integers(0, 2),
            maxItems=st.integers(0, 3),
            uniqueItems=st.booleans(),
            unevaluatedItems=inner,
        ).map(lambda schema: {"type": "array", **schema}),
        some(allOf=lists, anyOf=lists, oneOf=lists, **{"not": inner, "if": inner, "then": inner, "else": inner}),
        st.tuples(inner, inner).map(
            lambda pair: {**pair[0], **pair[1]} if isinstance(pair[0], dict) and isinstance(pair[1], dict) else pair[0]
        ),
    )


types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
leaves = st.one_of(
    st.booleans(),
    types.map(lambda name: {"type": name}),
    st.lists(types, min_size=1, max_size=3, unique=True).map(lambda names: {"type": names}),
    values.map(lambda value: {"const": value}),
    st.lists(values, min_size=1, max_size=4).map(lambda given: {"enum": given}),
    some(minLength=st.integers(0, 2), maxLength=st.integers(0, 3), pattern=st.sampled_from(PATTERNS)).map(
        lambda schema: {"type": "string", **schema}
    ),
    some(
        minimum=st.integers(-3, 5),
        maximum=st.sampled_from([2, 7, 11, 0.75, -0.5]),
        exclusiveMinimum=st.sampled_from([0, -1.5, 9]),
        exclusiveMaximum=st.sampled_from([0, 10, 2.25]),
        multipleOf=st.sampled_from([1, 2, 5, 0.5, 3]),
    ).map(lambda schema: {"type": "number", **schema}),
)
schemas = st.recursive(leaves, deeper, max_leaves=5)


def judged(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


@settings(max_examples=400, deadline=None)
@given(schemas, st.lists(values, min_size=1, max_size=5))
def test_valid_and_accepted_are_the_same(schema: Any, instances: list[Any]) -> None:
    try:
        grammar = schema_grammar(schema)
    except GrammarError as error:
        if str(error).startswith("No value meets"):
            assert not any(judged(schema, value) for value in instances), schema
        assume(False)
    for value in instances:
        assert (grammar.validate(value) is None) == judged(schema, value)
        text = grammar.serialise(value)
        assert json.loads(text) == value
        assert grammar.accepts(text) == judged(schema, value), (text, grammar.lark)


@settings(max_examples=150, deadline=None)
@given(schemas, st.integers(0, 10**6))
def test_what_is_generated_is_valid(schema: Any, seed: int) -> None:
    try:
        grammar = schema_grammar(schema)
    except GrammarError:
        assume(False)
    text = generate(grammar.matcher(), random.Random(seed), 120)
    if text is not None:
        assert judged(schema, json.loads(text)), (text, grammar.lark)


@settings(max_examples=150, deadline=None)
@given(schemas, st.lists(values, min_size=1, max_size=5))
def test_best_effort_takes_every_valid_value(schema: Any, instances: list[Any]) -> None:
    try:
        grammar = schema_grammar(schema, best_effort=True)
    except GrammarError:
        assume(False)
    for value in instances:
        if judged(schema, value):
            assert grammar.accepts(grammar.serialise(value)), (value, grammar.lark)
