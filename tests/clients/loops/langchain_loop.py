"""langchain-openai: two tools, calls side by side, a failing one, whole and streamed, and a second question behind the
first."""

import json
import sys

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

BASE_URL, API, STREAM = sys.argv[1], sys.argv[2], sys.argv[3] == "stream"
called: list[list[object]] = []


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    called.append(["weather", city])
    return f"4 degrees in {city}"


def told(error: Exception) -> str:
    return f"Error: {error}"


@tool
def convert(degrees: int) -> str:
    """Celsius to Fahrenheit."""
    called.append(["convert", degrees])
    if degrees < 0:
        raise ValueError("below zero")
    return str(degrees * 9 // 5 + 32)


tools = {each.name: each for each in (weather, convert)}
llm = ChatOpenAI(
    model="tiny", base_url=BASE_URL, api_key="none", use_responses_api=API == "responses", stream_usage=True
).bind_tools(list(tools.values()))


def ask(messages):
    if not STREAM:
        return llm.invoke(messages)
    whole = None
    for chunk in llm.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


messages = [SystemMessage("You answer with tools."), HumanMessage("Weather in Oslo and Rome, in Fahrenheit?")]
answers = []
for _ in range(2):
    while (message := ask(messages)).tool_calls:
        messages.append(message)
        for call in message.tool_calls:
            try:
                messages.append(tools[call["name"]].invoke(call))
            except ValueError as error:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"Error: {error}"})
    messages += [message, HumanMessage("Thanks.")]
    answers.append(message.text if isinstance(message.text, str) else message.text())
print(json.dumps({"called": called, "answers": answers}))
