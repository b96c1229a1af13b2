"""openai-agents: two tools, calls side by side, a failing one, whole and streamed, over both of OpenAI's APIs, and a
second question behind the first."""

import asyncio
import json
import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

BASE_URL, API, STREAM = sys.argv[1], sys.argv[2], sys.argv[3] == "stream"
set_tracing_disabled(True)
called: list[list[object]] = []


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    called.append(["weather", city])
    return f"4 degrees in {city}"


@function_tool
def convert(degrees: int) -> str:
    """Celsius to Fahrenheit."""
    called.append(["convert", degrees])
    if degrees < 0:
        raise ValueError("below zero")
    return str(degrees * 9 // 5 + 32)


async def main() -> None:
    client = AsyncOpenAI(base_url=BASE_URL, api_key="none")
    kind = OpenAIResponsesModel if API == "responses" else OpenAIChatCompletionsModel
    agent = Agent(
        name="clerk", instructions="You answer with tools.", model=kind("tiny", client),
        model_settings=ModelSettings(temperature=0.0), tools=[weather, convert],
    )  # fmt: skip
    answers, given = [], "Weather in Oslo and Rome, in Fahrenheit?"
    for _ in range(2):
        if STREAM:
            result = Runner.run_streamed(agent, given, max_turns=8)
            deltas = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
            assert deltas
        else:
            result = await Runner.run(agent, given, max_turns=8)
        answers.append(str(result.final_output))
        given = [*result.to_input_list(), {"role": "user", "content": "Thanks."}]
    print(json.dumps({"called": called, "answers": answers}))


asyncio.run(main())
