"""Chat histories that come back as text: what is reused of them on the default model."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.history import Load, measure
from benchmarks.text import generated_corpus
from palmette.runtime.config import DEFAULT_MODEL


@pytest.mark.slow
def test_with_the_ids_of_outputs_reuse_is_at_its_ceiling() -> None:
    texts = [text[:200] for text in generated_corpus(0).turns]
    load = Load(chats=3, turns=5, tokens=48, temperature=1.0)
    kept = asyncio.run(measure(DEFAULT_MODEL, texts, load, output_ids=True))
    again = asyncio.run(measure(DEFAULT_MODEL, texts, load, output_ids=False))
    assert 0 <= kept.ceiling - kept.cached <= 0.01 * kept.prompt
    assert again.ceiling - again.cached > kept.ceiling - kept.cached
