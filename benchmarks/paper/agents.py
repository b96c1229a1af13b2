"""Agents: ReAct with a tool, the agents of a small town, and a retrieval pipeline in two hops.

What a tool or a retriever answers is drawn beforehand, as in a recorded trace, so that it doesn't hang on what a model
has written and all systems get the same texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import palmette as pt
from benchmarks.paper.material import Draw
from benchmarks.paper.workload import Item, Plain, Workload, written

STEPS = 4
STEP, FINISH = 40, 24


def react_items(draw: Draw) -> list[Item]:
    """Questions of HotpotQA behind ReAct's six examples, which hold the observations, too."""
    head = (
        f"{draw.mark} Solve a question answering task with interleaving Thought, Action and Observation steps.\n"
        f"{draw.material.react}\nQuestion: "
    )
    return [
        {
            "head": head,
            "question": draw.fact().question,
            "observations": [" ".join(draw.observation().split()[:40]) for _ in range(STEPS)],
        }
        for _ in range(draw.count(12))
    ]


@pt.function
def react(s: Any, head: str, question: str, observations: Sequence[str]) -> None:
    s += head + question
    for number, observation in enumerate(observations, 1):
        s += f"\nThought {number}:" + written(f"step{number}", STEP)
        s[f"step{number}"]  # the tool needs it
        s += f"\nObservation {number}: {observation}"
    s += f"\nThought {len(observations) + 1}:" + written("finish", FINISH)


async def plain_react(client: Plain, head: str, question: str, observations: Sequence[str]) -> dict[str, Any]:
    outputs, text = {}, head + question
    for number, observation in enumerate(observations, 1):
        text += f"\nThought {number}:"
        outputs[f"step{number}"] = step = await client.complete(text, STEP)
        text += f"{step}\nObservation {number}: {observation}"
    text += f"\nThought {len(observations) + 1}:"
    return {**outputs, "finish": await client.complete(text, FINISH)}


PLACES = (" home", " park", " market", " school", " library")
WEIGHTS = (" low", " medium", " high")
HOURS = 4
REACTION = 32
PEOPLE = ("Ada", "Boris", "Clara", "Daniel", "Elsa", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Klara", "Ludwig")
TRADES = ("baker", "teacher", "gardener", "clerk", "painter", "nurse")


def town_items(draw: Draw) -> list[Item]:
    """People of one town, each with a description; every hour something happens to each."""
    news = " ".join(draw.words(40) for _ in range(3))
    world = (
        f"{draw.mark} A small town has a market, a park, a school, a library and some homes. Its people meet during "
        "the day, talk about what they have seen, and remember what matters to them. For each hour there is what a "
        "person sees, how much it matters (low, medium or high), what the person does, and where he or she goes.\n"
        f"News of the day: {news}\n\nPerson: "
    )
    items: list[Item] = []
    for number in range(draw.count(16)):
        trade = TRADES[number % len(TRADES)]
        person = f"{PEOPLE[number % len(PEOPLE)]} {number + 1}, a {trade}. {draw.words(40)}"
        items.append({"world": world, "person": person, "hours": [draw.fact().question for _ in range(HOURS)]})
    return items


@pt.function
def town(s: Any, world: str, person: str, hours: Sequence[str]) -> None:
    s += world + person
    for number, seen in enumerate(hours, 1):
        s += f"\nHour {number}. Somebody asks: {seen}\nIt matters:" + pt.select(f"weight{number}", WEIGHTS)
        s += "\nReaction:" + written(f"reaction{number}", REACTION)
        s += "\nNext place: the" + pt.select(f"place{number}", PLACES)


async def plain_town(client: Plain, world: str, person: str, hours: Sequence[str]) -> dict[str, Any]:
    outputs, text = {}, world + person
    for number, seen in enumerate(hours, 1):
        text += f"\nHour {number}. Somebody asks: {seen}\nIt matters:"
        outputs[f"weight{number}"] = weight = await client.choose(text, WEIGHTS)
        text += f"{weight}\nReaction:"
        outputs[f"reaction{number}"] = reaction = await client.complete(text, REACTION)
        text += f"{reaction}\nNext place: the"
        outputs[f"place{number}"] = place = await client.choose(text, PLACES)
        text += place
    return outputs


HOPS = 2
QUERY, RATIONALE, SHORT = 16, 40, 12


def rag_items(draw: Draw) -> list[Item]:
    """Questions of HotpotQA; passages drawn with the popularity of things that people ask about."""
    passages = [f"{fact.answer} | {fact.question} It is {fact.answer}. {draw.words(50)}" for fact in draw.facts(20)]
    weights = list(accumulate(1 / (rank + 1) for rank in range(len(passages))))
    solved = "\n\n".join(
        f"Context:\n[1] {draw.words(30)}\nQuestion: {fact.question}\nReasoning: Let us think step by step. The passage "
        f"says that it is {fact.answer}.\nAnswer: {fact.answer}"
        for fact in draw.facts(4)
    )
    head = f"{draw.mark} Answer questions with short factoid answers.\n\n---\n\n{solved}\n\n---\n\nContext:"
    items: list[Item] = []
    for _ in range(draw.count(20)):
        hops = [[draw.rng.choices(passages, cum_weights=weights)[0] for _ in range(2)] for _ in range(HOPS)]
        items.append({"head": head, "question": draw.fact().question, "hops": hops})
    return items


@pt.function
def rag(s: Any, head: str, question: str, hops: Sequence[Sequence[str]]) -> None:
    """A query before each hop, then a rationale and the answer behind all passages."""
    s += head
    found = 0
    for number, passages in enumerate(hops, 1):
        asking = s.fork(1)
        asking += f"\nQuestion: {question}\nQuery {number}:" + written(f"query{number}", QUERY)
        asking.join()
        s[f"query{number}"]  # the retriever needs it
        s += _context(passages, found)
        found += len(passages)
    s += f"\nQuestion: {question}\nReasoning: Let us think step by step."
    s += written("rationale", RATIONALE) + "\nAnswer:" + written("answer", SHORT)


async def plain_rag(client: Plain, head: str, question: str, hops: Sequence[Sequence[str]]) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    text, found = head, 0
    for number, passages in enumerate(hops, 1):
        asked = f"{text}\nQuestion: {question}\nQuery {number}:"
        outputs[f"query{number}"] = [await client.complete(asked, QUERY)]
        text += _context(passages, found)
        found += len(passages)
    text += f"\nQuestion: {question}\nReasoning: Let us think step by step."
    outputs["rationale"] = rationale = await client.complete(text, RATIONALE)
    outputs["answer"] = await client.complete(f"{text}{rationale}\nAnswer:", SHORT)
    return outputs


def _context(passages: Sequence[str], before: int) -> str:
    return "".join(f"\n[{number}] {passage}" for number, passage in enumerate(passages, before + 1))


AGENTS = (
    Workload(
        "react", "ReAct agents: 6 shots, 4 steps with a tool", react_items, react, plain_react,
        (*(f"step{number}" for number in range(1, STEPS + 1)), "finish"),
    ),
    Workload(
        "generative-agents", "generative agents: 4 hours in one town", town_items, town, plain_town,
        tuple(f"{name}{number}" for number in range(1, HOURS + 1) for name in ("weight", "reaction", "place")),
    ),
    Workload(
        "rag", "DSPy-like RAG: two hops, then an answer", rag_items, rag, plain_rag,
        (*(f"query{number}" for number in range(1, HOPS + 1)), "rationale", "answer"),
    ),
)  # fmt: skip
