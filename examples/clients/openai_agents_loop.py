"""openai-agents on a Palmette server: an agent that must call a tool, which really runs, and then answers.

palmette serve &
python examples/clients/openai_agents_loop.py [BASE_URL]
"""

import json
import sys

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents.agent import StopAtTools
from openai import AsyncOpenAI

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"
set_tracing_disabled(True)
called: list[dict[str, int]] = []


@function_tool
def add(a: int, b: int) -> int:
    """Adds two whole numbers.

    Args:
        a: the first
        b: the second
    """
    called.append({"a": a, "b": b})
    return a + b


agent = Agent(
    name="clerk",
    instructions="You add numbers with the tool.",
    model=OpenAIChatCompletionsModel("smollm2-135m", AsyncOpenAI(base_url=BASE_URL, api_key="none")),
    model_settings=ModelSettings(tool_choice="required", temperature=0.0, max_tokens=120),
    tools=[add],
    tool_use_behavior=StopAtTools(stop_at_tool_names=["add"]),
)
result = Runner.run_sync(agent, "What is 20 plus 22?", max_turns=3)
print(json.dumps({"called": called, "answer": str(result.final_output)}))
