"""instructor: calls of two kinds side by side, whole and as they come."""

import json
import sys
from collections.abc import Iterable

import instructor
from openai import OpenAI
from pydantic import BaseModel

BASE_URL, API, STREAM = sys.argv[1], sys.argv[2], sys.argv[3] == "stream"


class weather(BaseModel):
    """The weather in a city."""

    city: str


class convert(BaseModel):
    """Celsius to Fahrenheit."""

    degrees: int


client = instructor.from_openai(OpenAI(base_url=BASE_URL, api_key="none"), mode=instructor.Mode.PARALLEL_TOOLS)
found = client.chat.completions.create(
    model="tiny", messages=[{"role": "user", "content": "Weather in Oslo and Rome?"}], max_retries=0,
    response_model=Iterable[weather | convert],
)  # fmt: skip
called = [[type(each).__name__, *each.model_dump().values()] for each in found]
partial = instructor.from_openai(OpenAI(base_url=BASE_URL, api_key="none"), mode=instructor.Mode.TOOLS)
seen = list(
    partial.chat.completions.create_partial(
        model="tiny", messages=[{"role": "user", "content": "One city."}], response_model=weather, max_retries=0
    )
)
print(json.dumps({"called": called, "answers": [seen[-1].city]}))
