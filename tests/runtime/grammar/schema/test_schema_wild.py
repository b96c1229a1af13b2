"""Schemas in the manner of public ones: nearly all are accepted, and what is accepted is exact."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from schema_cases import generate, schema_grammar
from wild_schemas import WILD

from palmette.runtime.errors import GrammarError

REFUSED: dict[tuple[str, int], str] = {}
CASES = [(kind, index, schema, valid) for kind, cases in WILD.items() for index, (schema, valid) in enumerate(cases)]


def judge(schema: Any) -> Any:
    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(
        schema, format_checker=None
    )


def changed(value: Any, chance: random.Random) -> Iterator[Any]:
    """The value with one thing in it left out, exchanged or added."""
    for _ in range(12):
        made = copy.deepcopy(value)
        places = [place for place in _inside(made) if isinstance(place, dict | list) and place]
        if not places:
            yield chance.choice([None, 0, "", [], {}])
            continue
        place = chance.choice(places)
        at = chance.choice([*place]) if isinstance(place, dict) else chance.randrange(len(place))
        match chance.randrange(4):
            case 0:
                del place[at]
            case 1:
                place[at] = chance.choice([None, True, 0, 7, 1.5, "", "x", [], {}, place[at]])
            case 2 if isinstance(place, dict):
                place[chance.choice(["more", "x-more", at.upper()])] = copy.deepcopy(place[at])
            case 2:
                place.append(copy.deepcopy(place[at]))
            case 3:
                place[at] = copy.deepcopy(chance.choice(list(_inside(value))))
        yield made


def _inside(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _inside(inner)


@pytest.mark.parametrize(("kind", "index", "schema", "valid"), CASES, ids=[f"{case[0]} {case[1]}" for case in CASES])
def test_accepted_is_exact(kind: str, index: int, schema: Any, valid: Any) -> None:
    """The valid instance, changes of it, what is generated and changes of that: accepted just where they are valid.

    Formats are annotations to the judge, so they are left out where it is held against the grammar.
    """
    if (kind, index) in REFUSED:
        with pytest.raises(GrammarError, match=REFUSED[kind, index]):
            schema_grammar(schema)
        return
    grammar, without = schema_grammar(schema), schema_grammar(schema, formats=False)
    judged = judge(schema)
    assert judged.is_valid(valid)
    assert grammar.accepts(grammar.serialise(valid)), grammar.explain(grammar.serialise(valid))
    chance = random.Random(index)
    values = [valid]
    for seed in range(3):
        text = generate(grammar.matcher(), random.Random(seed), 200)
        if text is not None:
            values.append(json.loads(text))
            assert judged.is_valid(values[-1]), text
    for value in values:
        for other in changed(value, chance):
            assert without.accepts(without.serialise(other)) == judged.is_valid(other), other


def test_nearly_all_are_accepted() -> None:
    assert len(CASES) == 40
    assert len(REFUSED) / len(CASES) <= 0.05
