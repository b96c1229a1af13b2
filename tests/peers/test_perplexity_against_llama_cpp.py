"""The default model's perplexity on a fixed text (the licence), ours and llama.cpp's on the same file: within 0.5 %.

llama.cpp's server reports no log-probabilities of a prompt, so the text is given to it token by token, and each next
token's log-probability is taken from its list of the most likely ones.
"""

from __future__ import annotations

import math
from pathlib import Path

import httpx
import pytest

from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.engine import Engine
from palmette.runtime.messages.replies import TokenLogprob
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.text.load import load_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.peers]

MOST_LIKELY = 20_000  # how many tokens llama.cpp lists; one beyond them fails the test
LENGTH = 1200
FIRST = 16  # position of the first token that counts: before it almost anything may come


@pytest.mark.timeout(1800)
def test_perplexity_of_the_default_model(root: Path, model_files: ModelFiles, llama_cpp: httpx.Client) -> None:
    text = (root / "LICENSE").read_text()
    tokens = load_tokenizer(model_files).encode(text, special=False)[:LENGTH]
    params = SamplingParams(max_tokens=0)
    with Engine(model=str(model_files.path), kv_tokens=4096) as engine:
        generation = engine.run(_submit(engine, tokens, params))
        ours = [entry.logprob for entry in generation]
    theirs = [_logprob(llama_cpp, tokens[:length], tokens[length]) for length in range(FIRST, len(tokens))]
    mean = math.exp(-sum(ours) / len(ours)), math.exp(-sum(theirs) / len(theirs))
    print(f"\nperplexity over {len(ours)} tokens: {mean[0]:.4f}, llama.cpp {mean[1]:.4f}")
    assert abs(mean[0] / mean[1] - 1) < 0.005


async def _submit(engine: Engine, tokens: list[int], params: SamplingParams) -> tuple[TokenLogprob, ...]:
    finish = None
    async for chunk in engine.frontend.submit(tokens, params, prompt_logprobs_from=FIRST):
        finish = chunk.finish
    assert finish is not None
    assert finish.prompt_logprobs is not None
    return finish.prompt_logprobs


def _logprob(client: httpx.Client, prompt: list[int], token: int) -> float:
    body = {"prompt": prompt, "n_predict": 1, "temperature": -1.0, "n_probs": MOST_LIKELY, "cache_prompt": True}
    answer = client.post("/completion", json=body).raise_for_status().json()
    listed = answer["completion_probabilities"][0]["top_logprobs"]
    found: list[float] = [entry["logprob"] for entry in listed if entry["id"] == token]
    assert found, f"llama.cpp doesn't list token {token} behind {len(prompt)} tokens"
    return found[0]
