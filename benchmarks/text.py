"""Text for the workloads, cut to exact token counts: real questions and dialogues, else made from a seed.

Knows nothing of workloads. Called by workloads.py (TokenSource) and run.py (load_corpus).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Encode = Callable[[str], list[int]]
"""Text to token ids, special tokens neither added nor parsed."""


@dataclass(frozen=True)
class Corpus:
    """Texts by kind. `source` says in words where they come from; it goes into every result."""

    source: str
    problems: tuple[str, ...]  # worked school problems: long prompts and few-shot examples
    turns: tuple[str, ...]  # what users write in dialogues
    questions: tuple[str, ...]  # one sentence each


def load_corpus(folder: Path | None, seed: int = 0) -> Corpus:
    """The data sets in `folder` (GSM8K, MT-bench, HotpotQA); made-up text of the same shape where it has
    none.
    """
    if folder is None or not (folder / "gsm8k").is_dir():
        return generated_corpus(seed)
    problems = tuple(
        f"Question: {row['question']}\nAnswer: {row['answer']}"
        for file in sorted((folder / "gsm8k").glob("*.jsonl"))
        for row in _json_lines(file)
    )
    turns = tuple(turn for row in _json_lines(folder / "mtbench" / "question.jsonl") for turn in row["turns"])
    hotpot = json.loads((folder / "react" / "hotpot_dev_first300.json").read_text(encoding="utf-8"))
    return Corpus("GSM8K, MT-bench, HotpotQA", problems, turns, tuple(row["question"] for row in hotpot))


def generated_corpus(seed: int, count: int = 300) -> Corpus:
    """Sentences of made-up words with Zipf-like frequencies, as long as the real texts are."""
    rng = random.Random(seed)
    onsets, vowels, codas = (
        ["b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "st", "br"],
        ["a", "e", "i", "o", "u", "ea"],
        ["", "n", "r", "st"],
    )

    def word() -> str:
        return "".join(rng.choice(onsets) + rng.choice(vowels) + rng.choice(codas) for _ in range(rng.randint(1, 3)))

    words = [word() for _ in range(2000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]

    def sentence(low: int, high: int) -> str:
        chosen = rng.choices(words, weights, k=rng.randint(low, high))
        return " ".join(chosen).capitalize() + "."

    def text(sentences: int, low: int, high: int) -> str:
        return " ".join(sentence(low, high) for _ in range(sentences))

    return Corpus(
        source=f"generated, seed {seed}",
        problems=tuple(f"Question: {text(3, 12, 20)}\nAnswer: {text(4, 8, 14)}" for _ in range(count)),
        turns=tuple(text(3, 12, 24) for _ in range(count)),
        questions=tuple(sentence(12, 22) for _ in range(count)),
    )


class TokenSource:
    """Runs of token ids of exact length, each beginning with another text; reshuffled when all were used."""

    def __init__(self, texts: Sequence[str], encode: Encode, rng: random.Random) -> None:
        self._encode = encode
        self._texts = self._shuffled(list(texts), rng)

    def take(self, count: int, opening: str = "") -> tuple[int, ...]:
        """`count` ids: those of `opening`, then of as many texts as it takes, cut at the end."""
        ids = self._encode(opening) if opening else []
        while len(ids) < count:
            ids += self._encode(next(self._texts) + "\n\n")
        return tuple(ids[:count])

    @staticmethod
    def _shuffled(texts: list[str], rng: random.Random) -> Iterator[str]:
        while True:
            rng.shuffle(texts)
            yield from list(texts)


def _json_lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
