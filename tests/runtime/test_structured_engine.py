"""Constrained outputs on the engine with the tiny model: judged by `re` and `jsonschema`, in any company."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent / "grammar"))
sys.path.append(str(Path(__file__).parent / "grammar" / "schema"))

from grammar_patterns import regular
from test_schema_properties import schemas

from palmette.runtime.engine import Engine
from palmette.runtime.errors import GrammarError
from palmette.runtime.frontend import Output, collect
from palmette.runtime.messages.grammar import Jump, constraint
from palmette.runtime.messages.sampling import SamplingParams

PATTERNS = (r"[A-Z][a-z]+ [0-9]{1,3}", "(é|😀){2,4}", r'\{"a": (true|false)\}', "a{1,40}b", r"(the|model)( [a-z]+)*[.]")
JUMPS: tuple[Jump, ...] = ("bytes", "token", "off")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("tiny", threads=1, kv_tokens=8192, check_invariants=True) as running:
        yield running


def run(engine: Engine, params: list[SamplingParams], prompt: str = "the model") -> list[Output]:
    async def outputs() -> list[Output]:
        tokens = await engine.frontend.tokens_of(prompt)
        return await collect([engine.frontend.submit(tokens, each) for each in params])

    return engine.run(outputs())


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(regular, st.sampled_from(JUMPS), st.integers(0, 999), st.sampled_from([0.0, 0.7, 1.5]), st.booleans())
def test_random_patterns(
    engine: Engine, pattern: str, jump: Jump, seed: int, temperature: float, complete: bool
) -> None:
    wanted = constraint(regex=pattern, jump=jump, complete=complete)
    params = SamplingParams(constraint=wanted, max_tokens=40, seed=seed, temperature=temperature)
    try:
        (output,) = run(engine, [params])
    except GrammarError:
        assume(False)
    if output.finish.reason == "stop":
        assert re.fullmatch(pattern, output.text)
    else:
        assert output.usage.completion_tokens == 40
        assert not complete


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas, st.sampled_from(JUMPS), st.integers(0, 999), st.sampled_from([0.0, 1.0]))
def test_random_schemas(engine: Engine, schema: Any, jump: Jump, seed: int, temperature: float) -> None:
    wanted = constraint(json_schema=schema, jump=jump, complete=True)
    params = SamplingParams(constraint=wanted, max_tokens=80, seed=seed, temperature=temperature)
    try:
        (output,) = run(engine, [params])
    except GrammarError:
        return
    if output.finish.reason == "stop":
        assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(output.text)), output.text


def params_of(chance: random.Random) -> SamplingParams:
    wanted = None
    if chance.random() < 0.7:
        wanted = constraint(regex=chance.choice(PATTERNS), jump=chance.choice(JUMPS), complete=chance.random() < 0.5)
    return SamplingParams(
        constraint=wanted, max_tokens=chance.randint(1, 24), seed=chance.randrange(99), logprobs=True,
        temperature=chance.choice([0.0, 1.0]), ignore_eos=wanted is None,
    )  # fmt: skip


def test_company_changes_nothing(engine: Engine) -> None:
    chance = random.Random(1)
    many = [params_of(chance) for _ in range(24)]
    together = run(engine, many)
    for params, output in zip(many, together, strict=True):
        (alone,) = run(engine, [params])
        assert (alone.text, alone.tokens, alone.logprobs) == (output.text, output.tokens, output.logprobs)


@pytest.mark.parametrize("page_size", [1, 5, 64])
def test_pages_and_chunks_change_nothing(engine: Engine, page_size: int) -> None:
    chance = random.Random(2)
    many = [params_of(chance) for _ in range(12)]
    prompt = "the model and the tokens " * 8
    expected = run(engine, many, prompt)
    with Engine("tiny", threads=1, kv_tokens=4096, page_size=page_size, step_tokens=17, max_running=5) as other:
        found = run(other, many, prompt)
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.logprobs for each in found] == [each.logprobs for each in expected]


def test_skipping_sole_tokens_changes_no_bit(engine: Engine) -> None:
    for pattern in PATTERNS:
        for seed in range(3):
            outputs = run(
                engine,
                [
                    SamplingParams(constraint=constraint(regex=pattern, jump=jump), max_tokens=60, seed=seed)
                    for jump in ("off", "token")
                ],
            )
            assert outputs[0].tokens == outputs[1].tokens


def test_bytes_that_are_jumped_match_too(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"a long name": {"type": "boolean"}, "another": {"enum": ["one", "two"]}},
        "required": ["a long name", "another"],
        "additionalProperties": False,
    }
    for seed in range(6):
        params = SamplingParams(constraint=constraint(json_schema=schema), max_tokens=100, seed=seed)
        (output,) = run(engine, [params])
        assert output.finish.reason == "stop"
        jsonschema.validate(json.loads(output.text), schema)


def test_streams_hand_out_what_they_end_with(engine: Engine) -> None:
    async def streamed(params: SamplingParams) -> str:
        tokens = await engine.frontend.tokens_of("the model")
        return "".join([chunk.text async for chunk in engine.frontend.submit(tokens, params)])

    for seed in range(10):
        params = SamplingParams(
            constraint=constraint(regex=PATTERNS[seed % len(PATTERNS)]), max_tokens=30, seed=seed, stop=("b",),
            stop_regex=("[0-9]{2}",),
        )  # fmt: skip
        (whole,) = run(engine, [params])
        assert engine.run(streamed(params)) == whole.text


@pytest.mark.slow
def test_the_default_model_writes_objects() -> None:
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 1, "maxLength": 60},
            "topic": {"enum": ["number", "place", "person"]},
            "people": {"type": "array", "items": {"type": "string", "maxLength": 24}, "maxItems": 3},
            "year": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2100}, {"type": "null"}]},
        },
        "required": ["title", "topic", "people", "year"],
        "additionalProperties": False,
    }
    with Engine() as engine:
        prompt = "A JSON object about the old bridge of Mostar:\n"
        for jump in JUMPS:
            many = [
                SamplingParams(constraint=constraint(json_schema=schema, jump=jump), max_tokens=160, seed=seed)
                for seed in range(8)
            ]
            for output in run(engine, many, prompt):
                assert output.finish.reason == "stop"
                jsonschema.validate(json.loads(output.text), schema)
        short = SamplingParams(constraint=constraint(json_schema=schema, complete=True), max_tokens=40, seed=1)
        (output,) = run(engine, [short], prompt)
        assert output.finish.reason == "stop"
        jsonschema.validate(json.loads(output.text), schema)
