"""pydantic-ai: two tools, calls side by side, a failing one, whole and streamed; a second question behind the first."""

import asyncio
import json
import sys

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

BASE_URL, API, STREAM = sys.argv[1], sys.argv[2], sys.argv[3] == "stream"
called: list[list[object]] = []
seen: list[object] = []
kind = OpenAIResponsesModel if API == "responses" else OpenAIChatModel
agent = Agent(
    kind("tiny", provider=OpenAIProvider(base_url=BASE_URL, api_key="none")), instructions="You answer with tools.",
    retries=3,
)  # fmt: skip


@agent.tool_plain
def weather(city: str) -> str:
    """The weather in a city."""
    called.append(["weather", city])
    return f"4 degrees in {city}"


@agent.tool_plain
def convert(degrees: int) -> str:
    """Celsius to Fahrenheit."""
    called.append(["convert", degrees])
    if degrees < 0:
        raise ModelRetry("below zero")
    return str(degrees * 9 // 5 + 32)


async def read(_, events) -> None:
    """With a reader of its events, a run is streamed."""
    seen.extend([event async for event in events])


async def main() -> None:
    answers, history = [], None
    for question in ("Weather in Oslo and Rome, in Fahrenheit?", "Thanks."):
        result = await agent.run(question, message_history=history, event_stream_handler=read if STREAM else None)
        answers.append(result.output)
        history = result.all_messages()
    assert bool(seen) == STREAM
    print(json.dumps({"called": called, "answers": answers}))


asyncio.run(main())
