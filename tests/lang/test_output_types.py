"""Outputs of a type: which texts a grammar lets through, what they become, and what happens where they can't be."""

from __future__ import annotations

import datetime
import enum
import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Optional, TypedDict, Union

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lang_helpers import line_of

import palmette as sgl
from palmette import NotOfType, ProgramError, function, gen
from palmette.lang.types import output_type
from palmette.runtime.errors import GrammarError, InvalidRequest
from palmette.runtime.grammar.compile import compile


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Person:
    name: str
    age: int
    tags: list[str] = field(default_factory=list)
    born: datetime.date | None = None


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    population: int = pydantic.Field(ge=0)


@pydantic.dataclasses.dataclass
class Positive:
    value: int = pydantic.Field(gt=0)


class Animal(TypedDict):
    name: str
    legs: int


class Point(NamedTuple):
    x: int
    y: int


CASES: list[tuple[Any, str, Any]] = [
    (int, "42", 42),
    (int, " -7", -7),
    ("int", "0", 0),
    (float, "3.5", 3.5),
    (float, "-12", -12.0),
    (bool, " True", True),
    (bool, "false", False),
    (str, " as it is\n", " as it is\n"),
    (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
    ("time", "23:59:00", datetime.time(23, 59)),
    (datetime.datetime, "2026-11-30T10:20:30", datetime.datetime(2026, 11, 30, 10, 20, 30)),
    (Color, " blue", Color.BLUE),
    (Level, "2", Level.HIGH),
    (Literal["yes", "no", 3], "3", 3),
    (Person, '{"name": "Eva", "age": 5}', Person("Eva", 5)),
    (
        Person,
        '{"name": "E", "age": 5, "tags": ["a"], "born": "2020-01-02"}',
        Person("E", 5, ["a"], datetime.date(2020, 1, 2)),
    ),
    (City, '{"name": "Rome", "population": 9}', City(name="Rome", population=9)),
    (Positive, '{"value": 3}', Positive(3)),
    (list[int], "[1, 2]", [1, 2]),
    (dict[str, bool], '{"a": true}', {"a": True}),
    (Point, "[1, 2]", Point(1, 2)),
    (list[City], '[{"name": "Rome", "population": 9}]', [City(name="Rome", population=9)]),
    (dict, '{"a": [1]}', {"a": [1]}),
    (list, '[1, "a"]', [1, "a"]),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (Animal, '{"name": "Rex", "legs": 4}', {"name": "Rex", "legs": 4}),
    (list[Animal], '[{"name": "Rex", "legs": 4}]', [{"name": "Rex", "legs": 4}]),
    (Optional[int], " 5", 5),  # noqa: UP045
    (int | None, "None", None),
    (datetime.date | None, "null", None),
    (bool | None, " true", True),
    (str | None, '"None"', "None"),
    (City | None, "null", None),
    (int | str, '"a"', "a"),
    (Union[City, Positive], '{"value": 3}', Positive(3)),  # noqa: UP007
]


@pytest.mark.parametrize(("given_type", "text", "value"), CASES, ids=lambda case: str(case)[:30])
def test_a_text_of_the_type_passes_its_grammar_and_becomes_the_value(given_type: Any, text: str, value: Any) -> None:
    wanted = output_type(given_type)
    if wanted.constraint is not None:
        source = wanted.constraint.grammar
        assert compile(source.kind, source.text).accepts(text)
    assert wanted.value(text) == value
    assert type(wanted.value(text)) is type(value)


@pytest.mark.parametrize(
    ("given_type", "text"),
    [
        (int, "x"), (int, "007"), (float, ".5"), (bool, "yes"), (datetime.date, "2023-02-29"),
        (datetime.date, "2023-04-31"), (datetime.date, "1900-02-29"), (datetime.time, "24:00:00"), (Color, "green"),
        (Person, '{"name": "Eva"}'), (Person, '{"name": "Eva", "age": 5, "extra": 1}'), (City, '{"name": "Rome"}'),
        (list[int], '["a"]'), (Literal["yes", "no"], "maybe"), (int | None, "nil"), (dict, "[1]"), (list, "{}"),
        (Animal, '{"name": "Rex"}'), (City | Positive, "3"),
    ],
)  # fmt: skip
def test_a_text_of_another_type_does_not_pass(given_type: Any, text: str) -> None:
    source = output_type(given_type).constraint.grammar
    assert not compile(source.kind, source.text).accepts(text)


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_whole_numbers_come_back(value: int) -> None:
    wanted = output_type(int)
    source = wanted.constraint.grammar
    assert compile(source.kind, source.text).accepts(str(value))
    assert wanted.value(str(value)) == value


@given(st.dates(datetime.date(1000, 1, 1)))
def test_dates_come_back(value: datetime.date) -> None:
    wanted = output_type(datetime.date)
    source = wanted.constraint.grammar
    assert compile(source.kind, source.text).accepts(value.isoformat())
    assert wanted.value(value.isoformat()) == value


@pytest.mark.parametrize(
    ("written", "kept"),
    [("12 apples", "12"), ("12.\nNext", "12"), ("-3", "-3"), ("0\n", "0"), (" 7 ", None), ("1 2", None)],
)
def test_a_number_ends_where_something_else_begins(written: str, kept: str | None) -> None:
    """What the model may write behind the number, and the stops that cut it."""
    wanted = output_type(int)
    source = wanted.constraint.grammar
    assert compile(source.kind, source.text).accepts(written) == (kept is not None)
    if kept is not None:
        ends = [found.start() for stop in wanted.stop_regex if (found := re.search(stop, written))]
        assert written[: min(ends, default=len(written))] == kept


def test_a_program_reads_values(backend) -> None:
    @function
    def facts(s):
        s += "Legs of a dog: " + gen("legs", type=int)
        s += ". Who: " + gen("who", type=Person)
        s += ". Sure: " + gen("sure", dtype="bool", max_tokens=4)
        s["twice"] = s["legs"] * 2

    scripted = sgl.ScriptedBackend(["4 legs", '{"name": "Eva", "age": 5}', "True"])
    state = facts.run(backend=scripted)
    assert (state["legs"], state["twice"], state["sure"]) == (4, 8, True)
    assert state["who"] == Person("Eva", 5)
    assert state.text() == 'Legs of a dog: 4. Who: {"name": "Eva", "age": 5}. Sure: True'
    params = [call[1][1] for call in scripted.calls if call[0] == "generate"]
    assert [each.constraint.grammar.kind for each in params] == ["regex", "json_schema", "regex"]
    assert all(each.constraint.complete for each in params)


def test_a_space_before_the_value_is_not_written_twice() -> None:
    @function
    def spaced(s):
        s += "Behind a space: "
        s += gen("a", type=bool) + " Behind none:" + gen("b", type=bool)

    scripted = sgl.ScriptedBackend(["True", " True"])
    state = spaced.run(backend=scripted)
    assert state["a"] is state["b"] is True
    behind, before = [call[1][1].constraint.grammar for call in scripted.calls if call[0] == "generate"]
    assert not compile("regex", behind.text).accepts(" True")
    assert compile("regex", before.text).accepts(" True")


def test_an_output_that_is_not_of_its_type_names_the_line_and_what_to_do() -> None:
    def cut(s):
        s += "first" + gen("note")
        s += gen("who", type=Person, max_tokens=9)  # here

    scripted = sgl.ScriptedBackend(["fine", '{"name": "Eva", "age": 5}'])
    state = function(cut).run(backend=scripted)
    with pytest.raises(ProgramError, match=r"is no Person.*Raise max_tokens") as caught:
        state["who"]
    assert caught.value.where.line == line_of(cut, "here")
    assert isinstance(caught.value.cause, NotOfType)
    assert state["note"] == "fine"
    assert state.text(partial=True) == 'firstfine{"name": '


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: gen("x", type="integer"), r"type='integer' is not the name of a type. Did you mean 'int'"),
        (lambda: gen("x", type="flaot"), "Did you mean 'float'"),
        (lambda: gen("x", type="zzz"), "Names are int, float"),
        (lambda: gen("x", type=7), r"type=7 is no type that a model can write. Write a type: int"),
        (lambda: gen("x", type=[int]), r"Write list\[int\]"),
        (lambda: gen("x", type=[int, str]), r"Write tuple\[int, str\], or a dataclass"),
        (lambda: gen("x", type={"a": int}), "Make it a TypedDict or a dataclass"),
        (lambda: gen("x", type=bytes), "Models write text"),
        (lambda: gen("x", type=object()), "has no JSON schema"),
        (lambda: gen("x", type="list[int]"), r"without quotes: type=list\[int\]"),
        (lambda: gen("x", type="dict"), "without quotes: type=dict"),
        (lambda: gen("x", type=Literal[""]), "has no values, or an empty one"),
        (lambda: gen("x", type=int, regex="a"), "given together"),
        (lambda: gen("x", type=int, dtype=int), "type and dtype were given together"),
        (lambda: gen("x", type=int, choices=["a"]), "type has no meaning there"),
        (lambda: gen("x", int), r"max_tokens=<class 'int'> is a type.*type=…"),
        (lambda: gen("x", n=0), "n=0"),
        (lambda: gen("x", timeout=0), "timeout=0"),
        (lambda: gen("x", priority=1.5), "priority=1.5"),
    ],
)
def test_wrong_types_are_refused_where_they_are_written(write: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        write()


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (int, ["0", "-12", "120"]),
        (float, ["0.5", "-12.25", "3"]),
        (int | None, ["-12", "None", "null"]),
        (float | None, ["0.5", "None", "null"]),
        (bool | None, ["True", "false", "None", "null"]),
    ],
)
def test_what_ends_a_value_is_not_in_it(kind: Any, texts: list[str]) -> None:
    output = output_type(kind)
    for text in (*texts, *(" " + text for text in texts)):
        assert output.constraint is not None
        assert re.fullmatch(output.constraint.grammar.text, text)
        assert not any(re.search(end, text) for end in output.stop_regex), (text, output.stop_regex)
    for end in (" of", ".\n", "\n", '"'):
        assert not output.stop_regex or any(re.search(each, texts[0] + end) for each in output.stop_regex)


def test_every_type_on_an_engine(engine: sgl.Engine) -> None:
    types = [
        int, float, bool, datetime.date, datetime.datetime, Color, Literal["a", "b"], Person, City, list[int], dict,
        Animal, int | None, Union[City, Positive],  # noqa: UP007
    ]  # fmt: skip

    @function
    def all_types(s):
        for index, wanted in enumerate(types):
            s += f"Value {index} is " + gen(f"v{index}", type=wanted, max_tokens=120) + ".\n"

    for seed in range(3):
        state = all_types.run(seed=seed, backend=engine)
        for index, wanted in enumerate(types):
            value = state[f"v{index}"]
            kind = {Literal["a", "b"]: str, list[int]: list, Animal: dict}.get(wanted, wanted)
            assert isinstance(value, kind), (wanted, value)


def test_a_schema_that_nothing_meets_fails_its_program_alone(engine: sgl.Engine) -> None:
    @function
    def program(s, least):
        s += "A number: " + gen("x", json_schema=json.dumps({"type": "integer", "minimum": least, "maximum": 3}))

    bad, good = program.run_batch([{"least": 5}, {"least": 1}], backend=engine)
    error = bad.error()
    assert error is not None
    assert isinstance(error.cause, GrammarError)
    assert "test_output_types.py" in str(error)
    assert "gen('x')" in str(error)
    assert good["x"] in ("1", "2", "3")
