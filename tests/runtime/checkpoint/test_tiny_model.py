"""The tiny model: the same bits everywhere, another seed another model, near-normal numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.llama import tensor_shapes
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.checkpoint.tiny import FOLDER, HEAD_GAIN, TinyModel


def test_it_is_a_seeded_llama_with_three_query_heads_a_kv_head() -> None:
    checkpoint = open_checkpoint(resolve("tiny"))
    assert checkpoint.seeded
    assert checkpoint.config.heads == 3 * checkpoint.config.kv_heads
    shapes = tensor_shapes(checkpoint.config)
    assert {name: checkpoint.tensor(name).shape for name in checkpoint.tensor_names()} == shapes


def test_every_bit_is_fixed() -> None:
    digest = hashlib.sha256()
    for name in TinyModel().tensor_names():
        digest.update(TinyModel().tensor(name).data)
    assert digest.hexdigest() == "90efb04520b0b2fc8c12641db423d9d8ebe4b7308e14a831c32e057d7fbbdc48"


def test_seeds_differ_and_names_differ() -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    first, second = TinyModel(seed=0), TinyModel(seed=1)
    assert not np.array_equal(first.tensor(name).data, second.tensor(name).data)
    assert not np.array_equal(first.tensor(name).data, first.tensor(name.replace("0", "1")).data)


def test_the_logits_have_a_spread() -> None:
    model = TinyModel(FOLDER)
    head = to_float32(model.tensor("lm_head.weight"))
    x = np.random.default_rng(0).standard_normal(head.shape[1])
    logits = head @ (x / np.sqrt((x * x).mean()))
    assert logits.std() == pytest.approx(HEAD_GAIN, rel=0.2)
    values = to_float32(model.tensor("model.embed_tokens.weight")).reshape(-1)
    assert abs(values.mean()) < 0.02
    assert (np.abs(values) < 1).mean() == pytest.approx(0.683, abs=0.01)
    assert (np.abs(values) < 2).mean() == pytest.approx(0.954, abs=0.01)
