"""The texts that the workloads are made of: GSM8K, MT-bench, HotpotQA and ReAct's examples where there is a folder with
them, else texts made from a seed.

Knows nothing of programs and tokens. Lengths are in words; a run's texts begin with its own mark, so that nothing that
a server keeps of one run helps it in the next.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.text import generated_corpus

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """A school problem. `number`: what its solution ends with."""

    question: str
    solution: str
    number: str


@dataclass(frozen=True)
class Fact:
    question: str
    answer: str


@dataclass(frozen=True)
class Material:
    """`source` says in words where the texts come from; it goes into every result."""

    source: str
    problems: tuple[Problem, ...]
    dialogues: tuple[tuple[str, ...], ...]  # what a user says, turn by turn
    facts: tuple[Fact, ...]
    react: str  # solved questions with Thought, Action and Observation
    observations: tuple[str, ...]


def load_material(folder: Path | None, seed: int = 0) -> Material:
    if folder is None or not (folder / "gsm8k").is_dir():
        return generated_material(seed)
    problems = tuple(
        _problem(row["question"], row["answer"])
        for file in sorted((folder / "gsm8k").glob("*.jsonl"))
        for row in _json_lines(file)
    )
    dialogues = tuple(tuple(row["turns"]) for row in _json_lines(folder / "mtbench" / "question.jsonl"))
    hotpot = json.loads((folder / "react" / "hotpot_dev_first300.json").read_text(encoding="utf-8"))
    facts = tuple(Fact(row["question"], row["answer"]) for row in hotpot)
    react = json.loads((folder / "react" / "prompts_naive.json").read_text(encoding="utf-8"))["webthink_simple6"]
    return Material("GSM8K, MT-bench, HotpotQA, ReAct", problems, dialogues, facts, react.strip(), _observations(react))


def generated_material(seed: int) -> Material:
    """Texts of made-up words, about as long as the real ones."""
    corpus, rng = generated_corpus(seed), random.Random(seed)
    halves = [text.removeprefix("Question: ").split("\nAnswer: ") for text in corpus.problems]
    problems = tuple(Problem(question, solution, str(rng.randrange(200))) for question, solution in halves)
    turns = iter(corpus.turns)
    facts = tuple(Fact(question, " ".join(question.split()[:2])) for question in corpus.questions)
    steps = [
        f"Question: {fact.question}\nThought 1: {problem.question}\nAction 1: Search[{fact.answer}]\n"
        f"Observation 1: {problem.solution}\nThought 2: {fact.question}\nAction 2: Finish[{fact.answer}]"
        for fact, problem in zip(facts[:12], problems, strict=False)
    ]
    react = "\n".join(steps)
    return Material(corpus.source, problems, tuple(zip(turns, turns, strict=False)), facts, react, _observations(react))


def _problem(question: str, answer: str) -> Problem:
    solution, _, number = re.sub(r"<<[^>]*>>", "", answer).partition("\n#### ")
    return Problem(" ".join(question.split()), " ".join(solution.split()), number.strip())


def _observations(react: str) -> tuple[str, ...]:
    return tuple(text.strip() for text in re.findall(r"Observation \d+: (.*)", react))


def _json_lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


@dataclass
class Draw:
    """Draws the texts of one workload in one run. `scale` multiplies the number of programs, not their lengths."""

    material: Material
    rng: random.Random
    scale: float = 1.0
    mark: str = field(init=False)

    def __post_init__(self) -> None:
        self.mark = f"[{self.rng.randrange(16**8):08x}]"
        self._problems = self._shuffled(self.material.problems)
        self._facts = self._shuffled(self.material.facts)
        self._dialogues = self._shuffled(self.material.dialogues)
        self._observations = self._shuffled(self.material.observations)

    def count(self, number: int) -> int:
        return max(2, round(number * self.scale))

    def problem(self) -> Problem:
        return next(self._problems)

    def problems(self, count: int) -> list[Problem]:
        return [self.problem() for _ in range(count)]

    def fact(self) -> Fact:
        return next(self._facts)

    def facts(self, count: int) -> list[Fact]:
        return [self.fact() for _ in range(count)]

    def dialogue(self) -> tuple[str, ...]:
        return next(self._dialogues)

    def observation(self) -> str:
        return next(self._observations)

    def words(self, count: int, opening: str = "") -> str:
        """`opening` and problems' texts, so many words in all."""
        words = opening.split()
        while len(words) < count:
            problem = self.problem()
            words += f"{problem.question} {problem.solution}".split()
        return " ".join(words[:count])

    def shuffled(self, things: Sequence[T]) -> list[T]:
        return self.rng.sample(list(things), len(things))

    def _shuffled(self, things: Sequence[T]) -> Iterator[T]:
        while True:
            yield from self.shuffled(things)
