"""Tools: schemas from typed functions, calls that are sure to be valid, and results whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass
from typing import Literal

import pydantic
import pytest

import palmette as sgl
from palmette import function, gen
from palmette.lang.tools.docstrings import described
from palmette.lang.tools.tool import ToolCall, ToolSet, tool
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.grammar.compile import compile


@dataclass
class Place:
    town: str
    country: str = "Norway"


@tool
def weather(place: Place, unit: Literal["C", "F"] = "C", days: int = 1) -> str:
    """The weather that is to come.

    Args:
        place: where
        unit (str): of the temperature,
            Celsius or Fahrenheit
    """
    return f"{place.town}, {place.country}: {days} days of 20 {unit}"


@tool(name="sum", timeout=0.2)
async def add(numbers: list[float], wait: float = 0.0) -> float:
    """Adds numbers."""
    await asyncio.sleep(wait)
    return sum(numbers)


class Person(pydantic.BaseModel):
    name: str


@tool(ask=True)
def greet(person: Person) -> dict[str, str]:
    """Greets.

    :param person: who is greeted
    :returns: what was said
    """
    return {"said": f"hello {person.name}"}


def test_a_function_tells_what_it_takes() -> None:
    assert (weather.name, weather.description) == ("weather", "The weather that is to come.")
    properties = weather.parameters["properties"]
    assert weather.parameters["required"] == ["place"]
    assert properties["unit"] == {
        "enum": ["C", "F"],
        "description": "of the temperature, Celsius or Fahrenheit",
        "default": "C",
    }
    assert properties["days"] == {"type": "integer", "default": 1}
    assert add.schema["function"]["name"] == "sum"
    assert greet.parameters["properties"]["person"]["description"] == "who is greeted"
    assert weather(Place("Oslo")) == "Oslo, Norway: 1 days of 20 C"


@pytest.mark.parametrize(
    "text",
    [
        "Does it.\n\nArgs:\n    x: the first\n        and more\n    y (int): the second\n\nReturns:\n    nothing: much",
        "Does it.\n\n:param x: the first\n    and more\n:param int y: the second\n:returns: nothing",
        "Does it.\n\nParameters\n----\nx : int\n    the first\n    and more\ny\n    the second\n\nReturns\n----\nint",
    ],
)
def test_docstrings_in_three_styles(text: str) -> None:
    summary, parameters = described(text)
    assert summary == "Does it."
    assert parameters["x"] == "the first and more"
    assert parameters.get("y", "the second") == "the second"


def test_calls_run_side_by_side_in_order() -> None:
    tools = ToolSet([weather, add])
    meet = threading.Barrier(2, timeout=5)

    @tool
    def waits() -> str:
        """Waits."""
        meet.wait()
        return "met"

    assert [result.text for result in ToolSet([waits]).run([ToolCall("waits", {})] * 2)] == ["met", "met"]
    results = tools.run(
        [
            ToolCall("weather", {"place": {"town": "Oslo"}, "days": 2}),
            ToolCall("sum", '{"numbers": [1, 2.5]}'),
        ]
    )
    assert [(result.text, result.failed) for result in results] == [
        ("Oslo, Norway: 2 days of 20 C", False),
        ("3.5", False),
    ]
    assert results[1].value == 3.5


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (ToolCall("wether", {}), "There is no tool 'wether'. Did you mean 'weather'?"),
        (ToolCall("zzz", {}), "The tools are weather, sum, greet, broken."),
        (ToolCall("sum", '{"numbers": "x"}'), "the arguments of sum are wrong: Expected `array`"),
        (ToolCall("sum", "{"), "the arguments of sum are wrong"),
        (ToolCall("sum", {"numbers": [], "more": 1}), "unknown field `more`"),
        (ToolCall("sum", {"numbers": [], "wait": 9}), "sum took longer than 0.2 s"),
        (ToolCall("greet", {"person": {"name": 3}}), "the arguments of greet are wrong"),
        (ToolCall("greet", {"person": {"name": "Eva"}}), "the call of greet was not allowed"),
        (ToolCall("broken", {}), "ZeroDivisionError: division by zero"),
    ],
)
def test_what_goes_wrong_is_told_to_the_model(call: ToolCall, said: str) -> None:
    @tool
    def broken() -> float:
        """Fails."""
        return 1 / 0

    [result] = ToolSet([weather, add, greet, broken]).run([call])
    assert result.failed
    assert result.text.startswith("Error: ")
    assert said in result.text


def test_a_tool_that_hangs_holds_nobody() -> None:
    @tool(timeout=0.05)
    def hangs() -> None:
        """Takes long."""
        time.sleep(4)

    start = time.monotonic()
    results = ToolSet([hangs, add]).run([ToolCall("hangs", {}), ToolCall("sum", {"numbers": [1]})])
    assert time.monotonic() - start < 3.5
    assert [result.failed for result in results] == [True, False]


def test_approval_is_asked_for_where_a_tool_wants_it() -> None:
    asked: list[str] = []

    def approve(call: ToolCall) -> bool:
        asked.append(str(call))
        return "Eva" in str(call)

    async def approve_later(call: ToolCall) -> bool:
        return approve(call)

    calls = [ToolCall("greet", {"person": {"name": name}}) for name in ("Eva", "Tom")]
    calls.append(ToolCall("sum", {"numbers": []}))
    for hook in (approve, approve_later):
        results = ToolSet([greet, add], approve=hook).run(calls)
        assert [result.failed for result in results] == [False, True, False]
        assert results[0].text == '{"said":"hello Eva"}'
    assert asked[0] == 'greet({"person":{"name":"Eva"}})'
    assert len(asked) == 4


def test_what_is_no_tool_is_refused() -> None:
    def untyped(x):
        return x

    def star(*numbers: int) -> int:
        return sum(numbers)

    def strange(x: threading.Lock) -> None:
        """Nothing."""

    with pytest.raises(InvalidRequest, match="the parameter 'x' has no type"):
        tool(untyped)
    with pytest.raises(InvalidRequest, match="can't be given by name"):
        tool(star)
    with pytest.raises(InvalidRequest, match="no JSON schema"):
        tool(strange)
    with pytest.raises(InvalidRequest, match="Two tools are named 'weather'"):
        ToolSet([weather, weather])
    with pytest.raises(InvalidRequest, match="no tools"):
        ToolSet([])
    with pytest.raises(InvalidRequest, match="timeout=0"):
        tool(timeout=0)(strange)


def test_the_grammar_of_a_call_lets_valid_calls_through_alone() -> None:
    wanted = ToolSet([weather, add, greet]).call
    grammar = compile("json_schema", wanted.constraint.grammar.text)
    good = {"name": "weather", "arguments": {"place": {"town": "Oslo", "country": "Norway"}, "unit": "F"}}
    assert grammar.accepts(json.dumps(good))
    assert wanted.value(json.dumps(good)) == ToolCall("weather", good["arguments"])
    assert grammar.accepts(json.dumps({"name": "greet", "arguments": {"person": {"name": "Eva"}}}))
    for bad in (
        {"name": "wether", "arguments": good["arguments"]},
        {"name": "sum", "arguments": good["arguments"]},
        {"name": "weather", "arguments": {"unit": "F"}},
        {"name": "greet", "arguments": {"person": {"name": 3}}},
    ):
        assert not grammar.accepts(json.dumps(bad))


def test_a_model_of_any_size_makes_valid_calls(engine: sgl.Engine) -> None:
    @tool
    def pick(color: Literal["red", "blue"], count: Literal[1, 2, 3]) -> str:
        """Picks things of a color."""
        return f"{count} {color}"

    tools = ToolSet([pick])

    @function
    def program(s):
        s += "Call a tool: " + gen("call", type=tools.call, max_tokens=100)
        [result] = tools.run([s["call"]])
        s += "\nIt said: " + result.text
        s["result"] = result

    for seed in range(4):
        state = program.run(seed=seed, backend=engine)
        assert not state["result"].failed
        assert state.text().endswith(state["result"].text)
