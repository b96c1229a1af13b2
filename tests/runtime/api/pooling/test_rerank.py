"""/v1/rerank over the tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from frontends import model_frontend
from live_server import LiveServer

from palmette.runtime.api.pooling.rerank import PATHS
from palmette.runtime.api.pooling.schemas import RerankAnswer

QUERY = "What does bread need?"
DOCUMENTS = [f"Document {index}: " + text for index, text in enumerate(("Paris.", "Flour and water.", "The moon.") * 3)]


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=60) as made:
        yield made


def ask(http: httpx.Client, path: str = "/v1/rerank", **body: Any) -> dict[str, Any]:
    answer = http.post(path, json={"query": QUERY, "documents": DOCUMENTS, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    RerankAnswer.model_validate(found)
    return found


@pytest.mark.parametrize("method", ["likelihood", "yes_no"])
def test_the_best_come_first_with_the_scores_of_score(http: httpx.Client, method: str) -> None:
    results = ask(http, method=method)["results"]
    assert sorted(each["index"] for each in results) == list(range(len(DOCUMENTS)))
    scores = [each["relevance_score"] for each in results]
    assert scores == sorted(scores, reverse=True)
    assert all(each["document"] == {"text": DOCUMENTS[each["index"]]} for each in results)
    pairs = http.post("/v1/score", json={"text_1": QUERY, "text_2": DOCUMENTS, "method": method}).json()["data"]
    assert {each["index"]: each["relevance_score"] for each in results} == {p["index"]: p["score"] for p in pairs}


def test_how_many_are_returned_and_what_of_them(http: httpx.Client) -> None:
    every = ask(http)["results"]
    for path in PATHS:
        best = ask(http, path, top_n=2, return_documents=False)["results"]
        assert best == [{name: each[name] for name in ("index", "relevance_score")} for each in every[:2]]
    assert ask(http, top_n=0)["results"] == ask(http, top_n=100)["results"] == every
    assert ask(http, documents=[{"text": text} for text in DOCUMENTS])["results"] == every


def test_equal_documents_keep_their_order(http: httpx.Client) -> None:
    assert [each["index"] for each in ask(http, documents=["same"] * 4)["results"]] == [0, 1, 2, 3]


@pytest.mark.parametrize("method", ["likelihood", "yes_no"])
def test_what_documents_share_is_computed_once(http: httpx.Client, method: str) -> None:
    http.post("/flush_cache")
    instruction = "An instruction that is the same for all, and of some length, so that it is worth keeping. " * 4
    usage = ask(http, method=method, instruction=instruction)["usage"]
    computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    alone = ask(http, method=method, instruction=instruction[::-1], documents=DOCUMENTS[:1])["usage"]["prompt_tokens"]
    assert computed < 3 * alone < usage["prompt_tokens"]
    again = ask(http, method=method, instruction=instruction)["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == again["prompt_tokens"]


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"documents": []}, "documents", "0 entries"),
        ({"documents": "a"}, "documents", "list"),
        ({"documents": ["a", 5]}, "documents.1", "neither a text"),
        ({"documents": ["a", {"body": "b"}]}, "documents.1", "neither a text"),
        ({"documents": ["a", "word " * 3000]}, "documents.1", "context"),
        ({"documents": ["a"] * 1025}, "documents", "1025 entries"),
        ({"query": 5}, "query", "string"),
        ({"query": ""}, "query", "no tokens"),
        ({"top_n": -1}, "top_n", "greater than or equal to 0"),
        ({"max_tokens_per_doc": 100}, "max_tokens_per_doc", "not supported"),
        ({"rank_fields": ["a"]}, "rank_fields", "not supported"),
        ({"colour": "red"}, "colour", "not a field"),
    ],
)
def test_bad_requests_name_the_field(http: httpx.Client, body: dict[str, Any], param: str, says: str) -> None:
    answer = http.post("/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS, **body})
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert error["param"] == param, error
    assert says in error["message"]


FACTS = {
    "What is the capital of France?": "Paris is the capital of France and lies on the Seine.",
    "How do I bake bread?": "Mix flour, water, yeast and salt, knead, let it rise, and put the loaf into a hot oven.",
    "How long do cats sleep?": "A cat sleeps about sixteen hours a day.",
    "Which river crosses Vienna?": "The Danube flows through Vienna and Budapest.",
    "When did interest rates rise?": "The central bank raised its interest rate in March.",
    "Who wrote Hamlet?": "Hamlet is a tragedy by William Shakespeare.",
    "What does a radix tree store?": "A radix tree keeps strings with common prefixes in shared nodes.",
    "How tall is Mount Everest?": "Everest rises 8,849 metres above the sea.",
    "What causes tides?": "Tides come from the pull of the moon and the sun.",
    "How do vaccines work?": "Vaccines train the immune system to recognise a pathogen.",
}


@pytest.mark.slow
def test_the_default_model_finds_the_document_that_answers() -> None:
    with (
        LiveServer(lambda: model_frontend("smollm2-135m", threads=2)) as live,
        httpx.Client(base_url=live.url, timeout=300) as http,
    ):
        for query, document in FACTS.items():
            (best,) = ask(http, query=query, documents=list(FACTS.values()), top_n=1)["results"]
            assert best["document"]["text"] == document
            assert best["relevance_score"] > 0.5


def test_an_unknown_model_is_not_found(http: httpx.Client) -> None:
    assert http.post("/v1/rerank", json={"query": "a", "documents": ["b"], "model": "nope"}).status_code == 404
