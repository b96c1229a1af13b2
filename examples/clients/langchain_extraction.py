"""langchain-openai on a Palmette server: extraction by response_format and by function calling, and a streamed answer.

palmette serve &
python examples/clients/langchain_extraction.py [BASE_URL]
"""

import json
import sys

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000/v1"
TEXT = "Maria Keller, 34, moved from Bern to Lisbon in 2019 and works as a baker."


class Person(BaseModel):
    """A person that a text speaks of."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=120)
    job: str = Field(max_length=30)


llm = ChatOpenAI(model="smollm2-135m", base_url=BASE_URL, api_key="none", temperature=0, max_completion_tokens=120)
found = {
    method: llm.with_structured_output(Person, method=method).invoke(f"Who is it? {TEXT}").model_dump()
    for method in ("json_schema", "function_calling")
}
streamed = "".join(chunk.content for chunk in llm.stream("Name three rivers."))
print(json.dumps({**found, "streamed": streamed}))
