"""/v1/embeddings over the tiny model, through OpenAI's own client and by hand."""

from __future__ import annotations

import base64
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import openai
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_server import LiveServer

from palmette.runtime.api.pooling.embeddings import normalized
from palmette.runtime.api.pooling.schemas import EmbeddingAnswer

TEXTS = ["a river", "Much longer, a sentence about many rivers and hills. " * 4, "the dog"]
Vector = npt.NDArray[np.float32]


@pytest.fixture
def client(tiny: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=60) as made:
        yield made


def ask(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/v1/embeddings", json=body)


def vectors(http: httpx.Client, **body: Any) -> list[Vector]:
    answer = ask(http, **body)
    assert answer.status_code == 200, answer.text
    return [np.array(each["embedding"], np.float32) for each in answer.json()["data"]]


def test_the_client_reads_what_we_send(client: openai.OpenAI) -> None:
    """It asks for base64 where nothing else is said, and decodes it."""
    answer = client.embeddings.create(model="tiny", input=TEXTS)
    assert [each.index for each in answer.data] == [0, 1, 2]
    assert answer.model == "tiny"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)
    for each in answer.data:
        assert np.linalg.norm(each.embedding) == pytest.approx(1, abs=1e-6)
    named = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float", user="me")
    for one, other in zip(answer.data, named.data, strict=True):
        assert (np.array(one.embedding, np.float32) == np.array(other.embedding, np.float32)).all()


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_base64_and_numbers_together_and_alone_are_the_same(http: httpx.Client, pooling: str) -> None:
    together = vectors(http, input=TEXTS, pooling=pooling)
    for text, vector in zip(TEXTS, together, strict=True):
        (alone,) = vectors(http, input=text, pooling=pooling)
        assert (alone == vector).all()
        written = ask(http, input=text, pooling=pooling, encoding_format="base64").json()["data"][0]["embedding"]
        assert (np.frombuffer(base64.b64decode(written), "<f4") == vector).all()
    assert not (together[0] == together[2]).all()


def test_token_ids_are_those_of_the_text(http: httpx.Client) -> None:
    ids = [http.post("/tokenize", json={"prompt": text}).json()["tokens"] for text in TEXTS[:2]]
    texts = vectors(http, input=TEXTS[:2])
    assert all((one == other).all() for one, other in zip(texts, vectors(http, input=ids), strict=True))
    assert (vectors(http, input=ids[0])[0] == texts[0]).all()


def test_every_field_of_the_answer_is_in_its_schema(http: httpx.Client) -> None:
    for options in ({}, {"encoding_format": "base64"}):
        EmbeddingAnswer.model_validate(ask(http, input=TEXTS, **options).json())


def test_not_normalized_they_have_the_length_that_the_model_gave_them(http: httpx.Client, tiny: LiveServer) -> None:
    (raw,) = vectors(http, input="a river", normalize=False)
    (unit,) = vectors(http, input="a river")
    assert (normalized(raw) == unit).all()
    assert abs(np.linalg.norm(raw) - 1) > 1e-3
    found = tiny.call(tiny.frontend.scores.embed([tiny.call(tiny.frontend.tokens_of("a river"))]))
    assert raw.tobytes() == found.vectors[0]


def test_a_cached_prefix_serves_the_last_token_and_changes_nothing(http: httpx.Client) -> None:
    text = "A prefix that many share, and long enough for pages. " * 6
    first = ask(http, input=text, pooling="last").json()
    again = ask(http, input=text, pooling="last").json()
    mean = ask(http, input=text).json()
    assert again["data"] == first["data"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1
    assert mean["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    http.post("/flush_cache")
    assert ask(http, input=text).json()["data"] == mean["data"]
    assert ask(http, input=text, pooling="last").json()["data"] == first["data"]


def test_many_inputs(http: httpx.Client) -> None:
    texts = [f"text {index % 40}" for index in range(300)]
    found = vectors(http, input=texts)
    assert len(found) == 300
    for index in range(260):
        assert (found[index] == found[index + 40]).all()


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({}, "input", "'input'"),
        ({"input": ""}, "input", "empty"),
        ({"input": []}, "input", "neither a text"),
        ({"input": ["a", ""]}, "input.1", "empty"),
        ({"input": [[1], []]}, "input.1", "empty"),
        ({"input": [1, 999_999]}, "input", "999999 is not a token id"),
        ({"input": [[1], [-1]]}, "input.1", "-1 is not a token id"),
        ({"input": ["a", 1]}, "input", "neither a text"),
        ({"input": "a", "dimensions": 7}, "dimensions", "can't be shortened"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "'hex'"),
        ({"input": "a", "pooling": "cls"}, "pooling", "'cls'"),
        ({"input": "a", "messages": [{}]}, "messages", "not supported"),
        ({"input": "a", "colour": "red"}, "colour", "not a field"),
        ({"input": ["a", [5] * 3000]}, "input", "neither a text"),
        ({"input": [[5] * 3000]}, "input.0", "3000 tokens; the context has 2048"),
        ({"input": ["a"] * 2049}, "input", "2049 entries"),
    ],
)
def test_bad_requests_name_the_field(http: httpx.Client, body: dict[str, Any], param: str, says: str) -> None:
    answer = ask(http, **body)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["param"] == param
    assert says in error["message"]


def test_an_unknown_model_is_not_found(http: httpx.Client) -> None:
    assert ask(http, input="a", model="nope").status_code == 404


def test_the_model_s_own_size_may_be_said_and_ignored_fields_are_named(http: httpx.Client) -> None:
    size = len(vectors(http, input="a")[0])
    answer = ask(http, input="a", dimensions=size, tpot_target=1.0)
    assert answer.status_code == 200
    assert answer.headers["x-palmette-ignored"] == "tpot_target"


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_normalized_vectors_have_length_one_or_are_zeros(numbers: list[float]) -> None:
    vector = np.array(numbers, np.float32)
    found = normalized(vector)
    assert found.dtype == np.float32
    length = float(np.linalg.norm(found.astype(np.float64)))
    assert length == pytest.approx(1, abs=1e-5) or not vector.astype(np.float64).any()


def test_a_client_that_goes_away_ends_its_request(tiny: LiveServer) -> None:
    def wait_for(what: Callable[[], bool]) -> None:
        for _ in range(400):
            if what():
                return
            time.sleep(0.02)
        pytest.fail("the request did not begin, or runs on without its client")

    engine = tiny.frontend
    aborted = engine.counters.aborted
    body = orjson.dumps({"input": [[5 + index % 200] * 1500 for index in range(200)]})
    url = urllib.parse.urlsplit(tiny.url)
    with socket.create_connection((url.hostname or "", url.port or 0)) as client:
        client.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: engine.counters.running > 0)
    wait_for(lambda: engine.counters.running == engine.counters.waiting == 0)
    assert engine.counters.aborted == aborted + 1
