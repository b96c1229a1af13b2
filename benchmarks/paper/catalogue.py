"""All workloads by name, those of the paper first; and what servers warm up with."""

from __future__ import annotations

from typing import Any

import palmette as pt
from benchmarks.paper.agents import AGENTS
from benchmarks.paper.chats import CHATS, JSON_TOKENS, SCHEMA
from benchmarks.paper.few_shot import FEW_SHOT
from benchmarks.paper.material import Draw
from benchmarks.paper.thoughts import THOUGHTS
from benchmarks.paper.workload import Item, Plain, Workload, user, written

PAPER = (*FEW_SHOT[:2], *AGENTS[:2], *THOUGHTS, *CHATS, *AGENTS[2:])
WORKLOADS: dict[str, Workload] = {each.name: each for each in (*PAPER, *FEW_SHOT[2:])}


def _warm_up_items(draw: Draw) -> list[Item]:
    return [{"said": f"{draw.mark} {number} Hello."} for number in range(2)]


@pt.function
def _warm_up(s: Any, said: str) -> None:
    s += pt.user(said)
    s += pt.assistant(pt.gen("object", json_schema=SCHEMA, max_tokens=JSON_TOKENS, temperature=0))
    forks = s.fork(2)
    for fork in forks:
        fork += said + written("text", 4)
        fork += pt.select("letter", [" A", " B"]) + pt.select("choice", [" one of two", " two of two"])
    forks.join()


async def _plain_warm_up(client: Plain, said: str) -> dict[str, Any]:
    return {
        "object": await client.fill([user(said)], SCHEMA, JSON_TOKENS),
        "chat": await client.chat([user(said)], 4),
        "text": [await client.complete(said, 4)],
        "letter": await client.letter(said, [" A", " B"]),
        "choice": [await client.choose(said, [" one of two", " two of two"])],
    }


WARM_UP = Workload(
    "warm-up", "every kind of call, once", _warm_up_items, _warm_up, _plain_warm_up, ("object", "text", "choice")
)
