"""Constrained generations in programs: in process and over HTTP to the same engine."""

from __future__ import annotations

import json
import re
import threading
from typing import Literal

import jsonschema
import pydantic
import pytest

import palmette as sgl
from palmette import function, gen, select
from palmette.lang.errors import ProgramError
from palmette.runtime.errors import GrammarError, InvalidRequest

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@function
def form(s):
    s += "On " + gen("date", regex=r"20[0-9]{2}-(0[1-9]|1[0-2])-[0-9]{2}")
    s += " somebody wrote " + gen("person", json_schema=PERSON, max_tokens=100)
    s += " and " + gen("sum", ebnf='root ::= [0-9] ("+" [0-9])*', max_tokens=6, complete=True)
    s += ", " + gen("mood", choices=["glad", "sad"], choices_method="sample", temperature=1.0)
    s += " or " + select("last", ["early", "late"])
    s += "." + gen("end", stop_regex="[aeiou]", max_tokens=20)


def test_a_program_of_constrained_gens(real) -> None:
    texts = set()
    for seed in range(3):
        state = form.run(seed=seed, backend=real)
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])-\d\d", state["date"])
        jsonschema.validate(json.loads(state["person"]), PERSON)
        assert re.fullmatch(r"\d(\+\d)*", state["sum"])
        assert state["mood"] in ("glad", "sad")
        assert not re.search("[aeiou]", state["end"])
        assert state.text().startswith(f"On {state['date']} somebody wrote {state['person']} and {state['sum']}, ")
        texts.add(state.text())
    assert len(texts) == 3


class Mood(pydantic.BaseModel):
    word: Literal["glad", "sad"]
    sure: bool


def test_a_pydantic_model_is_a_schema(engine: sgl.Engine) -> None:
    @function
    def feel(s):
        s += "I feel " + gen("mood", json_schema=Mood, max_tokens=60, complete=True)

    assert Mood.model_validate_json(feel.run(backend=engine)["mood"]).word in ("glad", "sad")


def test_sampled_choices_are_drawn(engine: sgl.Engine) -> None:
    @function
    def toss(s):
        s += "A coin: " + gen("side", choices=["heads", "tails", "edge"], choices_method="sample", temperature=2.0)

    states = toss.run_batch([{} for _ in range(40)], seed=1, backend=engine)
    sides = [state["side"] for state in states]
    assert set(sides) <= {"heads", "tails", "edge"}
    assert len(set(sides)) > 1
    meta = states[0].get_meta_info("side")
    assert meta["finish_reason"]["type"] == "stop"
    assert toss.run(seed=5, backend=engine)["side"] == toss.run(seed=5, backend=engine)["side"]


def test_programs_stream_what_they_return(real) -> None:
    whole = form.run(seed=7, backend=real)
    streamed = form.run(seed=7, backend=real, stream=True)
    assert "".join(streamed.text_iter()) == whole.text()


def test_a_bad_pattern_fails_its_program_alone(engine: sgl.Engine) -> None:
    @function
    def bad(s, pattern):
        s += "x" + gen("y", regex=pattern, max_tokens=8)
        return s["y"]

    errors: list[BaseException] = []

    def run(pattern: str) -> None:
        try:
            bad.run(pattern, backend=engine)["y"]
        except ProgramError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(pattern,)) for pattern in ("(a", "ab?", "a**")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 2
    assert all(isinstance(error.cause, GrammarError) for error in errors)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: gen("x", regex="a", ebnf="b"), "given together"),
        (lambda: gen("x", choices_method="sample"), "choices=None"),
        (lambda: gen("x", json_schema={"const": {1, 2}}), "json_schema is no JSON: Object of type set"),
        (lambda: gen("x", json_schema={"const": float("nan")}), "json_schema is no JSON"),
        (lambda: gen("x", json_schema=int), "json_schema is no JSON: Object of type type"),
        (lambda: gen("x", choices=["a", ""], choices_method="sample"), "''"),
        (lambda: gen("x", choices=["a"], choices_method="sample", regex="a"), "given together"),
        (lambda: select("x", ["a"], choices_method="sample"), "choices_method='sample'"),
    ],
)
def test_bad_values_are_refused_where_they_are_written(write, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        write()
