"""Turns through the model's chat template: JSON by a schema, chats of four turns with short and with long answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import palmette as pt
from benchmarks.paper.material import Draw
from benchmarks.paper.workload import Item, Message, Plain, Workload, assistant, system, user, written

JSON_TOKENS = 200
# Lengths are bounded, so that a model that goes round in circles must end too.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 8, "maxLength": 40},
        "topic": {"enum": ["money", "time", "food", "people", "distance", "other"]},
        "names": {"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 12}, "maxItems": 2},
        "largest_number": {"type": "integer", "minimum": 0, "maximum": 9999},
        "summary": {"type": "string", "minLength": 20, "maxLength": 120},
        "needs_division": {"type": "boolean"},
    },
    "required": ["title", "topic", "names", "largest_number", "summary", "needs_division"],
    "additionalProperties": False,
}


def json_items(draw: Draw) -> list[Item]:
    """Problems of GSM8K, of which an object is to be made."""
    example = draw.problem()
    name = example.question.split()[0].strip("',.")
    instruction = (
        f"{draw.mark} You turn texts into JSON objects and write nothing else. An object has six fields: "
        '"title" (a string of at most six words), "topic" ("money", "time", "food", "people", "distance" or "other"), '
        '"names" (a list of the people in the text), "largest_number" (a whole number), "summary" (one sentence), '
        '"needs_division" (a boolean).\n'
        f'For example, the text "{example.question}" becomes {{"title": "A problem about {name}", "topic": "other", '
        f'"names": ["{name}"], "largest_number": 12, "summary": "A question about numbers in a story is asked.", '
        '"needs_division": false}'
    )
    return [{"instruction": instruction, "text": each.question} for each in draw.problems(draw.count(16))]


@pt.function
def extraction(s: Any, instruction: str, text: str) -> None:
    s += pt.system(instruction) + pt.user(text)
    s += pt.assistant(pt.gen("object", json_schema=SCHEMA, max_tokens=JSON_TOKENS, temperature=0))


async def plain_extraction(client: Plain, instruction: str, text: str) -> dict[str, Any]:
    return {"object": await client.fill([system(instruction), user(text)], SCHEMA, JSON_TOKENS)}


TURNS = 4


def chat_items(draw: Draw, chats: int, words: tuple[int, int], tokens: int) -> list[Item]:
    """What users say in MT-bench, with a text to talk about; so many words a turn."""
    items: list[Item] = []
    for number in range(draw.count(chats)):
        turns = [
            draw.words(draw.rng.randint(*words), " ".join(said.split()[:40]))
            for said in [*draw.dialogue(), *draw.dialogue()][:TURNS]
        ]
        items.append({"rules": f"{draw.mark} {number}: You are a helpful assistant.", "turns": turns, "tokens": tokens})
    return items


@pt.function
def chat(s: Any, rules: str, turns: Sequence[str], tokens: int) -> None:
    s += pt.system(rules)
    for number, said in enumerate(turns, 1):
        s += pt.user(said)
        s += pt.assistant(written(f"reply{number}", tokens))


async def plain_chat(client: Plain, rules: str, turns: Sequence[str], tokens: int) -> dict[str, Any]:
    messages: list[Message] = [system(rules)]
    outputs = {}
    for number, said in enumerate(turns, 1):
        messages.append(user(said))
        outputs[f"reply{number}"] = reply = await client.chat(messages, tokens)
        messages.append(assistant(reply))
    return outputs


REPLIES = tuple(f"reply{number}" for number in range(1, TURNS + 1))
CHATS = (
    Workload("json", "JSON by a schema of six fields", json_items, extraction, plain_extraction, ("object",)),
    Workload(
        "chat-short", "chats of 4 turns, short answers", lambda draw: chat_items(draw, 8, (100, 180), 8), chat,
        plain_chat, REPLIES,
    ),
    Workload(
        "chat-long", "chats of 4 turns, long answers", lambda draw: chat_items(draw, 8, (40, 80), 96), chat, plain_chat,
        REPLIES,
    ),
)  # fmt: skip
