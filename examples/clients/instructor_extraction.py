"""instructor on a Palmette server: a list of typed objects out of a text.

palmette serve &
python examples/clients/instructor_extraction.py [BASE_URL]
"""

import sys
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, Field

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"
TEXT = "I would like two black coffees, a tea with milk, and an apple cake."


class Item(BaseModel):
    kind: Literal["drink", "food"]
    name: str = Field(max_length=30)
    count: int = Field(ge=1, le=20)


class Order(BaseModel):
    items: list[Item] = Field(min_length=1, max_length=4)


client = instructor.from_openai(OpenAI(base_url=BASE_URL, api_key="none"), mode=instructor.Mode.TOOLS)
order = client.chat.completions.create(
    model="smollm2-135m",
    response_model=Order,
    messages=[{"role": "user", "content": f"Write down the order: {TEXT}"}],
    temperature=0,
    max_tokens=300,
    max_retries=0,
)
print(order.model_dump_json())
