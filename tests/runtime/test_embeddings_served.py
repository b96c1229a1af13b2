"""Embeddings, scores and rankings through the processes of `palmette serve`: their messages cross to the engine."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import openai
import pytest
from launched import Server

pytestmark = pytest.mark.server


def test_two_processes(start: Callable[..., Server]) -> None:
    url = start().url
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        texts = ["a river", "the dog", "a river"]
        answer = client.embeddings.create(model="tiny", input=texts)
        vectors = [each.embedding for each in answer.data]
        assert vectors[0] == vectors[2] != vectors[1]
        assert sum(number * number for number in vectors[0]) == pytest.approx(1, abs=1e-5)
        (alone,) = client.embeddings.create(model="tiny", input="a river", encoding_format="float").data
        assert alone.embedding == pytest.approx(vectors[0], abs=1e-6)
        with pytest.raises(openai.BadRequestError, match="can't be shortened"):
            client.embeddings.create(model="tiny", input="a river", dimensions=3)
    with httpx.Client(base_url=url, timeout=60) as http:
        ranked = http.post("/v1/rerank", json={"query": "water?", "documents": texts, "top_n": 2}).json()
        assert len(ranked["results"]) == 2
        scored = http.post("/v1/score", json={"query": "It is", "choices": [" wet", " dry"], "apply_softmax": True})
        assert sum(scored.json()["scores"][0]) == pytest.approx(1)
