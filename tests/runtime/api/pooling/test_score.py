"""/v1/score over the tiny model: pairs of texts, and labels behind prompts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from live_server import LiveServer

from palmette.runtime.api.pooling.inputs import share
from palmette.runtime.api.pooling.schemas import LabelAnswer, ScoreAnswer
from palmette.runtime.api.pooling.score import shares

DOCUMENTS = ["Paris lies on the Seine.", "Bread needs flour and water.", "The moon pulls the sea."]


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=60) as made:
        yield made


def ask(http: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = http.post("/v1/score", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


# --- labels ---


def test_labels_are_scored_as_the_next_token(http: httpx.Client) -> None:
    """With the log-probabilities that an echoed completion reports."""
    prompt, ids = http.post("/tokenize", json={"prompt": "It is raining. "}).json()["tokens"], [5, 80, 200, 7]
    answer = ask(http, query=prompt, label_token_ids=ids)
    LabelAnswer.model_validate(answer)
    (logprobs,), (scores,) = answer["logprobs"], answer["scores"]
    assert scores == [math.exp(value) for value in logprobs]
    http.post("/flush_cache")
    for token, logprob in zip(ids, logprobs, strict=True):
        echo = {"prompt": [*prompt, token], "max_tokens": 0, "echo": True, "logprobs": 0}
        (choice,) = http.post("/v1/completions", json=echo).json()["choices"]
        assert choice["logprobs"]["token_logprobs"][-1] == logprob


def test_items_go_behind_the_query_or_before_it(http: httpx.Client) -> None:
    items = [" It rains.", " It is dry."]
    fields: dict[str, Any] = {"choices": [" wet", " dry", " of no weather"]}
    behind = ask(http, query="Outside:", items=items, **fields)
    before = ask(http, query="Outside:", items=items, item_first=True, **fields)
    for found, prompts in ((behind, [f"Outside:{item}" for item in items]), (before, [f"{i}Outside:" for i in items])):
        assert found["logprobs"] == [ask(http, query=prompt, **fields)["logprobs"][0] for prompt in prompts]
        assert found["usage"]["prompt_tokens"] > 0
    ids = http.post("/tokenize", json={"prompt": "Outside:"}).json()["tokens"]
    assert (
        ask(http, query=ids, items=[7, 8], **fields)["logprobs"] == ask(http, query=[*ids, 7, 8], **fields)["logprobs"]
    )


def test_shares_of_labels_add_up_to_one(http: httpx.Client) -> None:
    fields: dict[str, Any] = {"query": "It is", "label_token_ids": [5, 80, 200]}
    plain, shared = ask(http, **fields), ask(http, **fields, apply_softmax=True)
    assert plain["logprobs"] == shared["logprobs"]
    assert sum(shared["scores"][0]) == pytest.approx(1)
    total = sum(plain["scores"][0])
    assert shared["scores"][0] == pytest.approx([score / total for score in plain["scores"][0]])


def test_the_same_again_is_not_computed(http: httpx.Client) -> None:
    http.post("/flush_cache")
    fields: dict[str, Any] = {"query": "A prompt that is asked about twice, and no more. " * 3, "choices": ["x", "yz"]}
    first, again = ask(http, **fields), ask(http, **fields)
    assert again["logprobs"] == first["logprobs"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"]


# --- pairs ---


@pytest.mark.parametrize("method", ["likelihood", "yes_no"])
def test_one_text_is_paired_with_each_of_the_others(http: httpx.Client, method: str) -> None:
    together = ask(http, text_1="What does bread need?", text_2=DOCUMENTS, method=method)
    ScoreAnswer.model_validate(together)
    assert [each["index"] for each in together["data"]] == [0, 1, 2]
    scores = [each["score"] for each in together["data"]]
    assert all(0 < score < 1 for score in scores)
    assert len(set(scores)) == 3
    for document, score in zip(DOCUMENTS, scores, strict=True):
        (alone,) = ask(http, text_1="What does bread need?", text_2=document, method=method)["data"]
        assert alone["score"] == score
    named = ask(http, queries=["What does bread need?"] * 3, documents=DOCUMENTS, method=method)
    assert named["data"] == together["data"]


def test_a_likelihood_is_that_of_the_query_behind_the_document(http: httpx.Client, tiny: LiveServer) -> None:
    """Computed by hand, from a chat's template on."""
    (found,) = ask(http, text_1="bread?", text_2=DOCUMENTS[1])["data"]

    def behind(document: str) -> float:
        text = f"Write a question or query that this document answers.\n\nDocument: {document}\n\nQuery:"
        messages = [{"role": "user", "content": text}]
        prompt = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
        (logprobs,) = tiny.call(tiny.frontend.scores.score(prompt, ["bread?"])).logprobs
        return math.fsum(logprobs) / len(logprobs)

    assert found["score"] == share(behind(DOCUMENTS[1]), behind(""))


def test_an_instruction_takes_the_place_of_ours(http: httpx.Client) -> None:
    fields: dict[str, Any] = {"text_1": "bread?", "text_2": DOCUMENTS}
    for method in ("likelihood", "yes_no"):
        ours = ask(http, **fields, method=method)["data"]
        theirs = ask(http, **fields, method=method, instruction="Say what comes to mind.")["data"]
        assert ours != theirs


@pytest.mark.parametrize("softmax", [shares, lambda pair: [share(*pair), share(*pair[::-1])]])
def test_shares_hold_however_unlikely_all_of_it_is(softmax: Any) -> None:
    assert softmax([-2000.0, -2000.0]) == pytest.approx([0.5, 0.5])
    assert softmax([-5000.0, -1.0]) == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({}, "text_1", "neither"),
        ({"text_1": "a"}, "text_2", "neither"),
        ({"text_1": "a", "queries": "b", "text_2": "c"}, "text_1", "both"),
        ({"text_1": ["a", "b"], "text_2": ["c"]}, "text_1", "2 texts and 'text_2' 1"),
        ({"text_1": "a", "text_2": []}, "text_2", "0 entries"),
        ({"text_1": "a", "text_2": [1]}, "text_2", "neither a text"),
        ({"text_1": "", "text_2": "c"}, "query", "no tokens"),
        ({"text_1": "a", "text_2": ["c", "word " * 3000]}, "text_2.1", "context"),
        ({"text_1": "a", "text_2": "c", "method": "cosine"}, "method", "'cosine'"),
        ({"query": "a"}, "query", "neither 'label_token_ids' nor 'choices'"),
        ({"query": "a", "choices": []}, "choices", "at least 1"),
        ({"query": "a", "choices": ["x", ""]}, "choices.1", "no tokens"),
        ({"query": "a", "choices": ["x"], "label_token_ids": [1]}, "choices", "both"),
        ({"query": "a", "label_token_ids": [10**6]}, "label_token_ids", "is not a token id"),
        ({"query": "a", "items": [[1]], "choices": ["x"]}, "items", "not all texts"),
        ({"query": "a", "items": [], "choices": ["x"]}, "items", "0 entries"),
        ({"choices": ["x"]}, "query", "neither a text"),
        ({"query": "a", "text_1": "b", "choices": ["x"]}, "text_1", "no labels"),
        ({"query": [5] * 2048, "choices": ["x"]}, "query", "context"),
        ({"text_1": "a", "text_2": "b", "truncate_prompt_tokens": 5}, "truncate_prompt_tokens", "not supported"),
    ],
)
def test_bad_requests_name_the_field(http: httpx.Client, body: dict[str, Any], param: str, says: str) -> None:
    answer = http.post("/v1/score", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert error["param"] == param, error
    assert says in error["message"]
