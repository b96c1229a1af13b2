"""Texts into pydantic models: the model writes JSON that follows the schema, and the program reads objects.

palmette run examples/json_extraction.py
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

import palmette as sgl


class Event(BaseModel):
    title: str = Field(max_length=40)
    kind: Literal["concert", "talk", "market", "sport"]
    town: str = Field(max_length=20)
    day: int = Field(ge=1, le=31)
    free: bool


TEXTS = [
    "On 12 May the Riverside Quartet plays in the town hall of Lund. Tickets are 20 euros.",
    "The flea market of Arles is on the 3rd, as every month. Everybody may come, nobody pays.",
    "Dr. Okafor talks on bees and cities in Leeds on 28 June. Entry is free.",
]

EXAMPLES = """Text: A football match in Porto on 7 July, 5 euros.
JSON: {"title": "Football match", "kind": "sport", "town": "Porto", "day": 7, "free": false}

Text: Come and hear Lea Roth on old maps. Basel, 19 March, no charge.
JSON: {"title": "Old maps", "kind": "talk", "town": "Basel", "day": 19, "free": true}
"""


@sgl.function
def extract(s, text):
    s += "Write each event as JSON.\n\n" + EXAMPLES + f"\nText: {text}\nJSON: "
    s += sgl.gen("event", type=Event, max_tokens=80, temperature=0)
    return s["event"]


if __name__ == "__main__":
    for text, state in zip(TEXTS, extract.run_batch([{"text": text} for text in TEXTS]), strict=True):
        print(text)
        print(f"  {state['event']!r}\n")
