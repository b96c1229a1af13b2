"""pydantic-ai on a Palmette server: an agent whose answer is a pydantic object, made by a tool call under a grammar.

palmette serve &
python examples/clients/pydantic_ai_agent.py [BASE_URL]
"""

import sys

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"


class River(BaseModel):
    name: str = Field(max_length=30)
    length_km: int = Field(ge=1, le=7000)
    continent: str = Field(max_length=20)


model = OpenAIChatModel("smollm2-135m", provider=OpenAIProvider(base_url=BASE_URL, api_key="none"))
agent = Agent(model, output_type=River, instructions="Answer with facts about rivers.")
result = agent.run_sync("Tell me about the Danube.", model_settings={"temperature": 0.0, "max_tokens": 200})
print(result.output.model_dump_json())
