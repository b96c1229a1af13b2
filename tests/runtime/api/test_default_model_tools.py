"""Tool calls of real models through OpenAI's client: the tiny one, and the default one (slow), which has no format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import openai
import pydantic
import pytest
from live_server import LiveServer

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DEFAULT_MODEL, EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import LocalLink


class GetWeather(pydantic.BaseModel):
    """The weather in a city."""

    city: str = pydantic.Field(max_length=20)
    unit: Literal["c", "f"]


class Report(pydantic.BaseModel):
    degrees: int = pydantic.Field(ge=-50, le=50)
    sky: Literal["clear", "cloudy"]


class Tagged(pydantic.BaseModel):
    tags: set[Annotated[str, pydantic.Field(max_length=4)]] = pydantic.Field(min_length=1, max_length=2)


WEATHER: Any = openai.pydantic_function_tool(GetWeather, name="get_weather")
NOW: Any = {"type": "function", "function": {"name": "now", "description": "The time of day."}}
HI: Any = [{"role": "user", "content": "What is the weather in Oslo, in degrees Celsius?"}]


def default_frontend() -> Frontend:
    config = EngineConfig(model=DEFAULT_MODEL, kv_tokens=16384)
    return build_frontend(config, resolve(DEFAULT_MODEL), LocalLink(build_core(config)))


@pytest.fixture(scope="module", params=["tiny", pytest.param("default", marks=pytest.mark.slow)])
def client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    if request.param == "tiny":
        live: LiveServer = request.getfixturevalue("tiny")
        with openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0) as made:
            yield made
        return
    with (
        LiveServer(default_frontend) as live,
        openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0) as made,
    ):
        yield made


def test_calls_that_must_be_made_meet_their_schema(client: openai.OpenAI) -> None:
    for seed in range(3):
        answer = client.chat.completions.parse(
            model="default", messages=HI, tools=[WEATHER], tool_choice="required", seed=seed,
            parallel_tool_calls=False, max_tokens=200,
        )  # fmt: skip
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls or ()
        assert isinstance(call.function.parsed_arguments, GetWeather)


def test_schemas_that_no_grammar_holds_to(client: openai.OpenAI) -> None:
    """Sets have unique items. A strict tool with one is refused by its name; another is called all the same."""
    asked: Any = {"model": "default", "messages": HI, "tool_choice": "required", "seed": 1, "max_tokens": 200}
    function = {"name": "tag", "parameters": Tagged.model_json_schema()}
    for stream in (False, True):
        made = client.chat.completions.create(**asked, tools=[NOW, {"type": "function", "function": function}])
        assert made.choices[0].finish_reason == "tool_calls"
        strict = {"type": "function", "function": {**function, "strict": True}}
        with pytest.raises(openai.BadRequestError, match="tool 'tag' can't be used") as caught:
            client.chat.completions.create(**asked, stream=stream, tools=[NOW, strict])
        assert caught.value.param == "tools.1"


def test_streams_say_the_same(client: openai.OpenAI) -> None:
    asked: Any = {
        "model": "default", "messages": HI, "tools": [WEATHER, NOW], "tool_choice": "required", "seed": 7,
        "max_tokens": 200, "n": 2, "parallel_tool_calls": False,
    }  # fmt: skip
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion()
    for one, other in zip(whole.choices, streamed.choices, strict=True):
        assert one.finish_reason == other.finish_reason
        assert one.message.content == other.message.content
        assert [(call.function.name, call.function.arguments) for call in one.message.tool_calls or ()] == [
            (call.function.name, call.function.arguments) for call in other.message.tool_calls or ()
        ]


def test_a_loop_that_ends_with_an_answer_of_a_type(client: openai.OpenAI) -> None:
    messages: list[Any] = list(HI)
    named: Any = {"type": "function", "function": {"name": "get_weather"}}
    message = client.chat.completions.create(
        model="default", messages=messages, tools=[WEATHER, NOW], tool_choice=named, seed=1, max_tokens=200
    ).choices[0].message  # fmt: skip
    (call,) = message.tool_calls or ()
    assert call.type == "function"
    assert GetWeather.model_validate_json(call.function.arguments)
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"degrees": 4})}]
    final = client.chat.completions.parse(
        model="default", messages=messages, tools=[WEATHER], tool_choice="none", response_format=Report,
        seed=1, max_tokens=200,
    )  # fmt: skip
    assert isinstance(final.choices[0].message.parsed, Report)


def test_calls_or_an_answer_of_a_type(client: openai.OpenAI) -> None:
    for seed in range(4):
        answer = client.chat.completions.parse(
            model="default", messages=HI, tools=[WEATHER], response_format=Report, seed=seed, max_tokens=300,
            parallel_tool_calls=False,
        )  # fmt: skip
        message = answer.choices[0].message
        called = message.tool_calls or []
        assert bool(called) == (message.parsed is None)
        assert all(isinstance(call.function.parsed_arguments, GetWeather) for call in called)
