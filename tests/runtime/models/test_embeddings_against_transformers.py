"""Embeddings of a whole engine against transformers' hidden states, float32: relative error below 1e-4."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from transformers_reference import theirs

from palmette.kernels.select import KernelName
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.engine import Engine

BOUND = 1e-4
TEXTS = [
    "A river.",
    "The Danube flows through Vienna and Budapest, past hills and many bridges, to the sea.",
    "One long sentence after another. " * 20,
]


def distance(ours: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> float:
    return float(np.linalg.norm(ours - expected) / np.linalg.norm(expected))


def check(model: str, kernels: KernelName) -> None:
    checkpoint = open_checkpoint(resolve(model))
    with Engine(model, dtype="float32", kernels=kernels, kv_tokens=2048, step_tokens=48, threads=2) as engine:
        tokens = [engine.run(engine.frontend.tokens_of(text)) for text in TEXTS]
        scores = engine.frontend.scores
        mean, last = (engine.run(scores.embed(tokens, pooling=kind)).vectors for kind in ("mean", "last"))
    for index, ids in enumerate(tokens):
        states = theirs(checkpoint, checkpoint.config, tuple(ids))[1].numpy().astype(np.float64)
        assert distance(np.frombuffer(mean[index], "<f4").astype(np.float64), states.mean(0)) < BOUND
        assert distance(np.frombuffer(last[index], "<f4").astype(np.float64), states[-1]) < BOUND
        if len(ids) > 1:
            assert distance(states.mean(0), states[-1]) > 100 * BOUND, "the comparison could not fail"


@pytest.mark.parametrize("kernels", ["portable", "cpu"])
def test_tiny(kernels: KernelName) -> None:
    check("tiny", kernels)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["portable", "cpu"])
def test_the_default_model(kernels: KernelName) -> None:
    check("smollm2-135m", kernels)
