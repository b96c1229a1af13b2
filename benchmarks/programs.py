"""Eleven workloads of programs that share prefixes, as data: what the reuse of a cache is measured on.

A program is a list of calls; a call arrives when those it needs have ended. All programs of a workload are independent
of each other but for the tokens they share. Knows nothing of servers, caches or time. Used by trie_bound.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from benchmarks.text import Corpus, Encode
from benchmarks.workloads import JSON_INSTRUCTION, Call, Maker, Part, Reply

Program = tuple[Call, ...]
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Programs:
    """`programs` in an order without meaning. A call's needs are indices into its own program."""

    name: str
    title: str
    programs: tuple[Program, ...]

    @property
    def calls(self) -> int:
        return sum(map(len, self.programs))


@dataclass
class Author(Maker):
    """Draws programs. `react`: few-shot examples of ReAct with their tool's answers, as text."""

    react: str = ""
    serial: int = field(default=0, init=False)

    def count(self, number: int) -> int:
        """How many of something: divided by `shrink`, at least 2."""
        return self.scaled(number)

    def text(self, words: str) -> Tokens:
        return tuple(self.encode(words))

    def shuffled(self, programs: list[Program]) -> tuple[Program, ...]:
        self.rng.shuffle(programs)
        return tuple(programs)

    def own(self, length: int) -> Tokens:
        """A run that begins like no other."""
        self.serial += 1
        return self.run(self.questions, length, f"\n{self.serial}. ")

    def about(self, length: int, spread: float = 0.4) -> int:
        return max(1, round(length * self.rng.uniform(1 - spread, 1 + spread)))


def mmlu(make: Author) -> Programs:
    """Five solved questions of a subject, then one more: the answer is a letter."""
    programs: list[Program] = []
    for _ in range(make.count(20)):
        shots = make.fresh(make.problems, 600)
        programs += [(Call((shots, make.own(make.about(90))), 1),) for _ in range(make.count(30))]
    return Programs("mmlu", "few-shot questions, MMLU-style", make.shuffled(programs))


def hellaswag(make: Author) -> Programs:
    """Four endings of a scene are scored behind the same twenty examples."""
    shots, programs = make.fresh(make.problems, 1500), []
    for _ in range(make.count(150)):
        scene = make.own(make.about(80))
        endings = [make.run(make.questions, make.about(25), f" {letter}) ") for letter in "ABCD"]
        programs.append(tuple(Call((shots, scene, ending), 0) for ending in endings))
    return Programs("hellaswag", "select among four endings, HellaSwag-style", make.shuffled(programs))


def react(make: Author) -> Programs:
    """Thought and action, then what the tool answers, in turn."""
    shots = make.text(make.react) if make.react else make.fresh(make.problems, 1400)
    if make.shrink > 1:
        shots = shots[: make.scaled(len(shots))]
    programs = []
    for _ in range(make.count(100)):
        path: tuple[Part, ...] = (shots, make.own(make.about(30)))
        calls: list[Call] = []
        for _ in range(make.rng.randint(3, 7)):
            calls.append(Call(path, make.scaled(make.about(60))))
            path = (*path, Reply(len(calls) - 1), make.run(make.problems, make.about(110), "\nObservation: "))
        programs.append(tuple(calls))
    return Programs("react", "ReAct with a tool", make.shuffled(programs))


def tree_of_thought(make: Author) -> Programs:
    """Three rounds of three ideas; a round builds on one idea of the round before, and an answer ends it."""
    shots, programs = make.fresh(make.problems, 480), []
    for _ in range(make.count(60)):
        calls: list[Call] = []
        path: tuple[Part, ...] = (shots, make.own(96))
        previous: tuple[int, ...] = ()
        for _ in range(3):
            ideas = []
            for number in range(3):
                opening = make.run(make.questions, 8, f"{number + 1}. Idea: ")
                calls.append(Call((*path, opening), make.scaled(make.about(48)), after=previous))
                ideas.append(len(calls) - 1)
            kept = make.rng.choice(ideas)
            path, previous = (*calls[kept].parts, Reply(kept)), tuple(ideas)
        calls.append(Call((*path, make.run(make.questions, 8, "So: ")), make.scaled(48), after=previous))
        programs.append(tuple(calls))
    return Programs("tree-of-thought", "trees of thought, 3 × 3 and an answer", make.shuffled(programs))


def skeleton_of_thought(make: Author) -> Programs:
    """A skeleton, then its points at once, each behind question and skeleton."""
    first, second, programs = make.fresh(make.problems, 250), make.fresh(make.problems, 150), []
    for _ in range(make.count(80)):
        question = make.own(make.about(60))
        calls = [Call((first, question), make.scaled(make.about(80)))]
        for point in range(make.rng.randint(3, 8)):
            opening = make.text(f"\nPoint {point + 1}:")
            calls.append(Call((second, question, Reply(0), opening), make.scaled(make.about(90))))
        programs.append(tuple(calls))
    return Programs("skeleton-of-thought", "a skeleton, its points in parallel", make.shuffled(programs))


def judge(make: Author) -> Programs:
    """Branch, solve, merge: criteria for two answers, a verdict by each, one verdict of all."""
    branch, solve, merge = (make.fresh(make.problems, length) for length in (200, 160, 180))
    programs = []
    for _ in range(make.count(60)):
        case = (make.own(make.about(70)), *(make.run(make.problems, make.about(220)) for _ in range(2)))
        calls = [Call((branch, *case), make.scaled(60))]
        openings = [make.text(f"\nCriterion {number + 1}:") for number in range(5)]
        calls += [Call((solve, *case, Reply(0), opening), make.scaled(make.about(70))) for opening in openings]
        verdicts = tuple(Reply(1 + number) for number in range(5))
        calls.append(Call((merge, *case, *verdicts), make.scaled(80)))
        programs.append(tuple(calls))
    return Programs("judge", "branch, solve and merge: a judge", make.shuffled(programs))


def extraction(make: Author) -> Programs:
    """One JSON object a text, field by field: each field's value is a call of its own."""
    instruction, programs = make.run(make.questions, 240, JSON_INSTRUCTION), []
    names = ("title", "topic", "people", "year", "summary", "certain")
    for _ in range(make.count(80)):
        path: tuple[Part, ...] = (instruction, make.own(make.about(300)))
        calls: list[Call] = []
        for name in names:
            path = (*path, make.text(f'"{name}": '))
            calls.append(Call(path, make.scaled(make.about(10))))
            path = (*path, Reply(len(calls) - 1))
        programs.append(tuple(calls))
    return Programs("json", "JSON objects, field by field", make.shuffled(programs))


def _chats(make: Author, system: int, count: int, turns: tuple[int, int], said: int, answered: int) -> list[Program]:
    start, programs = make.fresh(make.questions, system), []
    for _ in range(make.count(count)):
        path: tuple[Part, ...] = (start,)
        calls: list[Call] = []
        for _ in range(make.rng.randint(*turns)):
            path = (*path, make.own(make.about(said, 0.6)))
            calls.append(Call(path, make.scaled(make.about(answered, 0.6))))
            path = (*path, Reply(len(calls) - 1))
        programs.append(tuple(calls))
    return programs


def short_chats(make: Author) -> Programs:
    return Programs("chat-short", "chats of few short turns", make.shuffled(_chats(make, 60, 150, (2, 5), 60, 120)))


def long_chats(make: Author) -> Programs:
    return Programs("chat-long", "chats of many long turns", make.shuffled(_chats(make, 200, 40, (6, 14), 250, 300)))


def rag(make: Author) -> Programs:
    """Three documents, the most popular ones first, and a question."""
    instruction = make.fresh(make.questions, 80)
    documents = [make.own(make.about(350)) for _ in range(make.count(60))]
    weights = list(accumulate(1 / (rank + 1) for rank in range(len(documents))))
    programs: list[Program] = []
    for _ in range(make.count(250)):
        drawn = sorted({make.rng.choices(range(len(documents)), cum_weights=weights)[0] for _ in range(4)})[:3]
        parts = (instruction, *(documents[each] for each in drawn), make.own(make.about(30)))
        programs.append((Call(parts, make.scaled(make.about(60))),))
    return Programs("rag", "retrieved documents before a question", make.shuffled(programs))


def self_consistency(make: Author) -> Programs:
    """Eight solved problems and one more, which is answered ten times."""
    shots, programs = make.fresh(make.problems, 1000), []
    for _ in range(make.count(60)):
        question = make.own(make.about(80))
        programs.append(tuple(Call((shots, question), make.scaled(make.about(100))) for _ in range(10)))
    return Programs("self-consistency", "ten answers to each problem", make.shuffled(programs))


AUTHORS: dict[str, Callable[[Author], Programs]] = {
    "mmlu": mmlu,
    "hellaswag": hellaswag,
    "react": react,
    "tree-of-thought": tree_of_thought,
    "skeleton-of-thought": skeleton_of_thought,
    "judge": judge,
    "json": extraction,
    "chat-short": short_chats,
    "chat-long": long_chats,
    "rag": rag,
    "self-consistency": self_consistency,
}


def write(name: str, corpus: Corpus, encode: Encode, seed: int, *, shrink: int = 1, react: str = "") -> Programs:
    """The named workload; each draws from a generator of its own."""
    return AUTHORS[name](Author(corpus, encode, random.Random(f"{seed} {name}"), shrink, react=react))


def react_examples(folder: Path | None) -> str:
    """The few-shot examples of the ReAct data set, where the folder has it."""
    if folder is None or not (file := folder / "react" / "prompts_naive.json").is_file():
        return ""
    return str(json.loads(file.read_text(encoding="utf-8"))["webthink_simple6"])
