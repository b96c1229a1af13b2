"""Choices behind solved examples: MMLU-like questions with four letters, HellaSwag-like stories with four endings.

The data sets of the paper aren't at hand. Questions are GSM8K problems with four numbers to choose from; stories are
their problems, and the endings last sentences of problems, one of which is the story's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import palmette as pt
from benchmarks.paper.material import Draw, Problem
from benchmarks.paper.workload import Item, Plain, Workload

LETTERS = (" A", " B", " C", " D")
SUBJECTS = ("elementary mathematics", "household economics")


def mmlu_items(draw: Draw) -> list[Item]:
    """Five solved questions of a subject, then one more."""
    items: list[Item] = []
    for subject in SUBJECTS:
        head = f"{draw.mark} The following are multiple choice questions (with answers) about {subject}.\n\n"
        shots = head + "".join(f"{_question(draw, each)[0]}\n\n" for each in draw.problems(5))
        items += [{"shots": shots, "question": _question(draw, each)[1]} for each in draw.problems(draw.count(32))]
    return draw.shuffled(items)


def _question(draw: Draw, problem: Problem) -> tuple[str, str]:
    """With its answer, and without."""
    numbers = [problem.number]
    while len(numbers) < len(LETTERS):
        if (other := draw.problem().number) not in numbers:
            numbers.append(other)
    numbers = draw.shuffled(numbers)
    options = "".join(f"\n{letter.strip()}. {number}" for letter, number in zip(LETTERS, numbers, strict=True))
    asked = f"{problem.question}{options}\nAnswer:"
    return asked + LETTERS[numbers.index(problem.number)], asked


@pt.function
def mmlu(s: Any, shots: str, question: str) -> None:
    s += shots + question
    s += pt.select("letter", LETTERS)


async def plain_mmlu(client: Plain, shots: str, question: str) -> dict[str, Any]:
    return {"letter": await client.letter(shots + question, LETTERS)}


def hellaswag_items(draw: Draw) -> list[Item]:
    """Twenty solved stories, then one more with four endings."""
    head = f"{draw.mark} Each story goes on with its most sensible ending.\n\n"
    shots = head + "".join(f"{story}{ending}\n\n" for story, ending in map(_story, draw.problems(20)))
    items: list[Item] = []
    for problem in draw.problems(draw.count(32)):
        story, ending = _story(problem)
        others = [_story(each)[1] for each in draw.problems(3)]
        items.append({"shots": shots, "story": story, "endings": draw.shuffled([ending, *others])})
    return items


def _story(problem: Problem) -> tuple[str, str]:
    """All but the last sentence, and the last one, which begins with its space. One that is too long is cut."""
    words = problem.question.split()[-60:]
    sentences = " ".join(words).replace("? ", "?\n").replace(". ", ".\n").split("\n")
    ending = " ".join(sentences[-1].split()[:16])
    return " ".join(sentences[:-1]) or "A question:", f" {ending}"


@pt.function
def hellaswag(s: Any, shots: str, story: str, endings: Sequence[str]) -> None:
    s += shots + story
    s += pt.select("ending", list(endings))


async def plain_hellaswag(client: Plain, shots: str, story: str, endings: Sequence[str]) -> dict[str, Any]:
    return {"ending": await client.choose(shots + story, endings)}


@pt.function
def drawn(s: Any, shots: str, story: str, endings: Sequence[str]) -> None:
    """The same choice as servers' structured outputs make: token by token among the endings that are left."""
    s += shots + story
    most = max(map(len, endings))
    s += pt.gen("ending", choices=list(endings), choices_method="sample", temperature=0, max_tokens=most)


FEW_SHOT = (
    Workload("mmlu", "MMLU-like: 5 shots, a letter of four", mmlu_items, mmlu, plain_mmlu, ("letter",)),
    Workload(
        "hellaswag", "HellaSwag-like: 20 shots, an ending of four", hellaswag_items, hellaswag, plain_hellaswag,
        ("ending",),
    ),
    Workload(
        "hellaswag-drawn", "the same, its ending drawn token by token", hellaswag_items, drawn, plain_hellaswag,
        ("ending",),
    ),
)  # fmt: skip
