"""Our greedy continuations against llama.cpp's.

On the same quantised file llama.cpp rounds activations to 8 bits before each product, which moves logprobs by a few
tenths: continuations part where the two likeliest tokens are that close. On the same weights dequantised to float32
nothing is rounded on either side, and they part at ties only: that test shows that weights and model are right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import httpx
import pytest

from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.engine import Engine
from palmette.runtime.frontend import Output
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.text.load import load_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.peers]

LENGTH = 48
CLOSE = 0.25  # between the logprobs of the two likeliest tokens, where continuations on the same file may part
TIE = 0.01  # the same, in float32
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"

PROMPTS = [
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village by the sea,",
    "The three primary colours are red,",
    "def fibonacci(n):\n    ",
    "import json\n\nwith open('settings.json') as file:\n",
    "Question: A farmer has 12 cows and buys 7 more. How many cows has he now?\nAnswer:",
    "Dear Dr. Miller,\n\nThank you for",
    "1, 2, 4, 8, 16,",
    "The opposite of hot is cold. The opposite of tall is",
    "In 1969, the first human being",
    "SELECT name, price FROM products WHERE",
    "Monday, Tuesday, Wednesday,",
    "A good recipe for pancakes begins with",
    CHAT.format("What is photosynthesis?"),
    CHAT.format("Name three rivers in Europe."),
    CHAT.format("Write a short poem about autumn."),
    CHAT.format("How do I sort a list in Python?"),
    CHAT.format("Translate 'good morning' into Spanish."),
    CHAT.format("A train travels 60 miles in an hour. How far does it travel in three hours?"),
]


@dataclass(frozen=True)
class Continuation:
    """llama.cpp's greedy tokens. `ended`: it stopped at one of the ids that end a text, which isn't among them."""

    tokens: tuple[int, ...]
    ended: bool


@pytest.fixture(scope="module")
def prompts(model_files: ModelFiles) -> list[list[int]]:
    tokenizer = load_tokenizer(model_files)
    return [tokenizer.encode(prompt, special=True) for prompt in PROMPTS]


def continuation(client: httpx.Client, prompt: list[int]) -> Continuation:
    body = {
        "prompt": prompt, "n_predict": LENGTH, "temperature": 0, "return_tokens": True, "cache_prompt": False,
    }  # fmt: skip
    answer = client.post("/completion", json=body).raise_for_status().json()
    ended = answer["stop_type"] == "eos"
    made: int = answer["tokens_predicted"]
    tokens = tuple(answer["tokens"][: made - 1] if ended else answer["tokens"])
    assert len(tokens) == made - ended
    return Continuation(tokens, ended)


@dataclass(frozen=True)
class Parting:
    """Where two continuations part. `gap`: between our two likeliest tokens; `below`: of theirs below our best."""

    prompt: str
    index: int
    gap: float
    below: float

    def __str__(self) -> str:
        return f"{self.prompt!r} at {self.index}: gap {self.gap:.3f}, theirs is {self.below:.3f} below our best"


def parting(prompt: str, ours: Output, theirs: Continuation, eos_ids: tuple[int, ...]) -> Parting | None:
    """None where all tokens that both have are the same."""
    for index, token in enumerate(ours.tokens[: len(theirs.tokens) + theirs.ended]):
        at_end = index == len(theirs.tokens)
        others = eos_ids if at_end else (theirs.tokens[index],)
        if token in others:
            continue
        top = dict(ours.logprobs[index].top)
        best, second = sorted(top.values(), reverse=True)[:2]
        below = best - max((top[other] for other in others if other in top), default=-math.inf)
        return Parting(prompt, index, best - second, below)
    return None


@pytest.mark.timeout(1800)
def test_the_default_engine_on_the_same_file(
    model_files: ModelFiles, prompts: list[list[int]], llama_cpp: httpx.Client
) -> None:
    partings = compare(model_files, prompts, llama_cpp, "auto")
    assert [str(found) for found in partings if found.gap >= CLOSE or math.isinf(found.below)] == []


@pytest.mark.timeout(1800)
def test_float32_on_the_same_weights_dequantised(
    model_files: ModelFiles, prompts: list[list[int]], llama_cpp_float32: httpx.Client
) -> None:
    partings = compare(model_files, prompts, llama_cpp_float32, "float32")
    assert [str(found) for found in partings if found.gap >= TIE] == []
    assert len(partings) <= 2


def compare(
    model_files: ModelFiles, prompts: list[list[int]], client: httpx.Client, dtype: Literal["auto", "float32"]
) -> list[Parting]:
    theirs = [continuation(client, prompt) for prompt in prompts]
    params = SamplingParams(max_tokens=LENGTH, temperature=0, ignore_eos=True, logprobs=True, top_logprobs=8)
    with Engine(model=str(model_files.path), dtype=dtype, kv_tokens=8192) as engine:
        ours = [engine.generate(prompt, params) for prompt in prompts]
        using = f"{engine.ready.dtype}, {engine.ready.kernels} kernels"
    eos_ids = load_tokenizer(model_files).eos_ids
    found = [parting(*each, eos_ids) for each in zip(PROMPTS, ours, theirs, strict=True)]
    partings = [each for each in found if each is not None]
    agreeing = len(PROMPTS) - len(partings)
    print(f"\n{using}: {agreeing} of {len(PROMPTS)} agree in all tokens", *partings, sep="\n")
    return partings
