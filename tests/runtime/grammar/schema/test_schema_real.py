"""Schemas of many kinds: how many are accepted, and that none of them lets anything wrong through."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from real_schemas import REAL
from schema_cases import generate, schema_grammar

from palmette.runtime.errors import GrammarError

REFUSED: dict[str, int] = {}


def _judged(schema: Any, value: Any) -> bool:
    judge = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return bool(judge(schema).is_valid(value))


@pytest.mark.parametrize("kind", REAL)
def test_real_schemas(kind: str) -> None:
    refused = 0
    for schema, valid, invalid in REAL[kind]:
        try:
            grammar = schema_grammar(schema)
        except GrammarError:
            refused += 1
            continue
        for value in valid:
            assert _judged(schema, value)
            assert grammar.accepts(grammar.serialise(value)), grammar.explain(grammar.serialise(value))
        for value in invalid:
            assert grammar.validate(value) is not None
            assert not grammar.accepts(grammar.serialise(value)), value
        for seed in range(2):
            text = generate(grammar.matcher(), random.Random(seed), 250)
            assert text is None or _judged(schema, json.loads(text)), text
    assert refused == REFUSED.get(kind, 0)
