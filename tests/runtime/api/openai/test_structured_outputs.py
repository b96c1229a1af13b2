"""Structured outputs over HTTP: OpenAI's client in its own words, our fields, streams, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import jsonschema
import openai
import pydantic
import pytest
from live_server import LiveServer

MESSAGES: Any = [{"role": "user", "content": "Tell me about it."}]
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 999}, "label": {"type": "string", "maxLength": 6}},
    "required": ["x", "label"],
    "additionalProperties": False,
}


class Mood(pydantic.BaseModel):
    mood: Literal["good", "bad", "mixed"]
    stars: int = pydantic.Field(ge=1, le=5)
    certain: bool


@pytest.fixture
def client(tiny: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=30) as made:
        yield made


def events(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]


def test_json_schema(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "point", "strict": True, "schema": POINT}}
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, response_format=form, n=3, seed=5, max_tokens=100
    )
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content or ""), POINT)
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_json_object(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, response_format={"type": "json_object"}, seed=1, max_tokens=40,
        extra_body={"complete": True},
    )  # fmt: skip
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)


def test_pydantic_models(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tiny", messages=MESSAGES, response_format=Mood, seed=2, max_tokens=100
    )
    assert isinstance(answer.choices[0].message.parsed, Mood)


def test_the_stream_helper_parses(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="tiny", messages=MESSAGES, response_format=Mood, seed=2, max_tokens=100
    ) as stream:
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Mood)
    schema = {**Mood.model_json_schema(), "additionalProperties": False}
    whole = client.chat.completions.create(
        model="tiny", messages=MESSAGES, seed=2, max_tokens=100,
        response_format={"type": "json_schema", "json_schema": {"name": "m", "schema": schema}},
    )  # fmt: skip
    assert final.choices[0].message.content == whole.choices[0].message.content


FIELDS = [
    ({"regex": "(north|south)-[0-9]{2,4}"}, "(north|south)-[0-9]{2,4}"),
    ({"ebnf": 'root ::= "a" root "b" | "-"'}, "a*-b*"),
    ({"choices": ["left", "right", "straight on"]}, "left|right|straight on"),
    ({"json_schema": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}}, r"\[(true|false|, )*\]"),
]


@pytest.mark.parametrize(("fields", "pattern"), FIELDS)
@pytest.mark.parametrize("jump", ["bytes", "token", "off"])
def test_every_kind_on_every_surface(
    http: httpx.Client, fields: dict[str, Any], pattern: str, jump: str, client: openai.OpenAI
) -> None:
    body = {"max_tokens": 60, "seed": 9, "temperature": 1.5, "jump": jump, "complete": True, **fields}
    chat = {**body, "messages": MESSAGES}
    whole = http.post("/v1/chat/completions", json=chat).json()["choices"][0]
    assert re.fullmatch(pattern, whole["message"]["content"])
    assert whole["finish_reason"] == "stop"
    parts = [part["choices"][0] for part in events(http.post("/v1/chat/completions", json={**chat, "stream": True}))]
    assert "".join(part["delta"].get("content") or "" for part in parts) == whole["message"]["content"]
    assert parts[-1]["finish_reason"] == "stop"
    plain = {**body, "prompt": "It is "}
    text = http.post("/v1/completions", json=plain).json()["choices"][0]["text"]
    assert re.fullmatch(pattern, text)
    streamed = events(http.post("/v1/completions", json={**plain, "stream": True}))
    assert "".join(part["choices"][0]["text"] for part in streamed) == text
    native = {**body, "text": "It is "}
    assert http.post("/generate", json=native).json()["text"] == text
    assert "".join(part["delta"] for part in events(http.post("/generate", json={**native, "stream": True}))) == text


def test_forced_tokens_have_logprobs_too(http: httpx.Client) -> None:
    """Clients' types have no null there; the tokens are those that are taken without log-probabilities."""
    body = {"regex": "(yes|no): it (is|was) so[.]", "max_tokens": 40, "seed": 1}
    chat = {**body, "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
    whole = http.post("/v1/chat/completions", json=chat).json()["choices"][0]
    content = whole["logprobs"]["content"]
    assert all(-100 < entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 2 for entry in content)
    plain = http.post("/v1/chat/completions", json={**chat, "logprobs": False, "top_logprobs": None}).json()
    assert plain["choices"][0]["message"]["content"] == whole["message"]["content"]
    assert plain["usage"]["completion_tokens"] == len(content)
    streamed = events(http.post("/v1/chat/completions", json={**chat, "stream": True}))
    flat = [
        entry
        for part in streamed
        if part["choices"][0]["logprobs"]
        for entry in part["choices"][0]["logprobs"]["content"]
    ]
    assert flat == content
    for jump in ("bytes", "token", "off"):
        legacy = http.post("/v1/completions", json={**body, "prompt": "a", "logprobs": 2, "jump": jump}).json()
        shown = legacy["choices"][0]["logprobs"]
        assert None not in shown["token_logprobs"]
        assert {len(top) for top in shown["top_logprobs"]} <= {2, 3}
        native = http.post("/generate", json={**body, "text": "a", "return_logprob": True, "jump": jump})
        entries = native.json()["meta_info"]["output_token_logprobs"]
        assert [entry["logprob"] for entry in entries] == shown["token_logprobs"]


def test_forced_arguments_have_logprobs_too(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"unit": {"const": "celsius"}}, "required": ["unit"]}
    function = {"name": "weather", "parameters": {**schema, "additionalProperties": False}}
    body = {
        "messages": MESSAGES, "tools": [{"type": "function", "function": function}], "tool_choice": "required",
        "parallel_tool_calls": False, "logprobs": True, "top_logprobs": 1, "max_tokens": 100,
    }  # fmt: skip
    choice = http.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"unit": "celsius"}
    assert all(-100 < entry["logprob"] <= 0 for entry in choice["logprobs"]["content"])


@pytest.mark.parametrize(
    ("fields", "whole"),
    [
        ({"regex": "[ab]*c"}, True),
        ({"regex": "[ab]*"}, True),
        ({"ebnf": 'root ::= "a" root | "b"'}, True),
        ({"regex": "[ab]{40}c"}, False),
        ({"regex": "[ab]{40}c", "complete": True}, False),
        ({"regex": "[ab]*c", "complete": False}, False),
        ({"json_schema": {"type": "array", "items": {"const": 1}, "minItems": 9}}, False),
        ({"response_format": {"type": "json_object"}}, False),
    ],
)  # fmt: skip
def test_patterns_come_to_their_end_within_the_limit(http: httpx.Client, fields: dict[str, Any], whole: bool) -> None:
    """Those of our own fields; of JSON clients expect to hear that it was cut."""
    bias = {
        "logit_bias": {str(token): -100 for token in http.post("/tokenize", json={"prompt": "c}b"}).json()["tokens"]}
    }
    body = {"messages": MESSAGES, "max_tokens": 8, "temperature": 0, **bias, **fields}
    choice = http.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert choice["finish_reason"] == ("stop" if whole else "length")
    if whole and "regex" in fields:
        assert re.fullmatch(fields["regex"], choice["message"]["content"])
    streamed = events(http.post("/v1/chat/completions", json={**body, "stream": True}))
    assert (
        "".join(part["choices"][0]["delta"].get("content") or "" for part in streamed) == choice["message"]["content"]
    )
    assert streamed[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]


def test_a_grammar_that_leaves_only_what_min_tokens_bars_is_the_clients_matter(http: httpx.Client) -> None:
    stops = http.post("/tokenize", json={"prompt": "b"}).json()["tokens"]
    body = {"prompt": "a", "regex": "[xy]b", "jump": "off", "max_tokens": 9, "min_tokens": 5, "stop_token_ids": stops}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "min_tokens"
    assert http.post("/v1/completions", json={**body, "min_tokens": 1}).status_code == 200


def test_a_way_to_the_end_has_the_logprob_that_clients_know(http: httpx.Client) -> None:
    body = {"messages": MESSAGES, "max_tokens": 8, "temperature": 0, "logprobs": True, "regex": "[ab]*c{3}"}
    bias = {str(token): -100 for token in http.post("/tokenize", json={"prompt": "c"}).json()["tokens"]}
    choice = http.post("/v1/chat/completions", json={**body, "logit_bias": bias}).json()["choices"][0]
    assert choice["message"]["content"].endswith("ccc")
    assert all(isinstance(entry["logprob"], float) for entry in choice["logprobs"]["content"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"regex": "foo**"}, "position 4"),
        ({"regex": "(a"}, "position 0"),
        ({"regex": r"(a)\1"}, "back-reference"),
        ({"ebnf": ""}, ""),
        ({"ebnf": 'root ::= "yes" | | ) "no'}, "line 1"),
        ({"choices": []}, "choices"),
        ({"json_schema": {"type": "strin"}}, "type"),
        ({"json_schema": {"properties": {"a": "bar"}}}, "#/properties/a"),
        ({"json_schema": {"items": {"pattern": r"(a)\1"}}}, "#/items/pattern"),
        ({"json_schema": {"properties": {"x": {"$ref": "http://example.com/s"}}}}, "#/properties/x"),
        ({"json_schema": "{"}, "JSON"),
        ({"regex": "a", "json_schema": {}}, "given together"),
        ({"regex": "a", "response_format": {"type": "json_object"}}, "given together"),
        ({"response_format": {"type": "json_schema"}}, "no json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"regex": "a", "jump": "far"}, "jump"),
        ({"stop_regex": "a*"}, "matches the empty text"),
        ({"stop_regex": ["a", "(b"]}, "position 0"),
    ],
)
def test_what_can_not_be_is_a_400_that_says_where(http: httpx.Client, fields: dict[str, Any], words: str) -> None:
    response = http.post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 5, **fields})
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    stream = http.post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 5, "stream": True, **fields})
    assert stream.status_code == 400  # not a stream that begins and then fails
    assert words in stream.json()["error"]["message"]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 9}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return schema


@pytest.mark.parametrize("depth", [20, 120, 300])
def test_deep_schemas_are_answered_or_refused(http: httpx.Client, depth: int) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "t", "schema": nested(depth)}}
    for fields in ({"response_format": form}, {"json_schema": nested(depth)}):
        response = http.post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 900, **fields})
        assert response.status_code == 200 if depth < 50 else response.status_code in (200, 400), response.text
        if response.status_code == 200:
            content = response.json()["choices"][0]["message"]["content"]
            assert re.fullmatch('({"a": )*[0-9]}*', content)
            assert content.count("{") == content.count("}") == depth


def test_numbers_of_any_size(http: httpx.Client) -> None:
    schema = '{"type": "integer", "minimum": 123456789012345678901234567890, "maximum": 123456789012345678901234567893}'
    body = {"messages": MESSAGES, "max_tokens": 60, "json_schema": schema}
    content = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert 0 <= int(content) - 123456789012345678901234567890 <= 3


def test_best_effort_is_judged_at_the_end(http: httpx.Client) -> None:
    schema = {
        "type": "array",
        "items": {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 9},
        "uniqueItems": True,
        "minItems": 3,
    }
    form = {"type": "json_schema", "json_schema": {"name": "t", "schema": schema, "strict": False}}
    seen = set()
    for seed in range(12):
        body = {"messages": MESSAGES, "response_format": form, "max_tokens": 60, "seed": seed, "complete": True}
        response = http.post("/v1/chat/completions", json=body)
        seen.add(response.status_code)
        if response.status_code == 200:
            jsonschema.validate(json.loads(response.json()["choices"][0]["message"]["content"]), schema)
        else:
            assert "'uniqueItems'" in response.json()["error"]["message"]
    assert 200 in seen


def test_a_cut_output_says_length(http: httpx.Client) -> None:
    body = {"messages": MESSAGES, "regex": "[a-z]{30}", "max_tokens": 4, "seed": 1}
    choice = http.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("pattern", ["e", "[aeiou][b-df-z]", r"\s+\w", "(t|th|the) ?", "[A-Z0-9]{2}"])
def test_stop_regex(http: httpx.Client, pattern: str) -> None:
    for seed in range(4):
        body = {"text": "the model", "max_tokens": 40, "seed": seed, "ignore_eos": True}
        free = http.post("/generate", json=body).json()["text"]
        stopped = http.post("/generate", json={**body, "stop_regex": pattern}).json()
        found = re.search(pattern, free)
        reason = stopped["meta_info"]["finish_reason"]
        assert reason == ({"type": "stop", "matched": pattern} if found else {"type": "length", "matched": None})
        assert stopped["text"] == (free[: found.start()] if found else free)
        parts = events(http.post("/generate", json={**body, "stop_regex": pattern, "stream": True}))
        assert "".join(part["delta"] for part in parts) == stopped["text"]
        assert parts[-1]["meta_info"]["finish_reason"] == reason
        chat = {"messages": MESSAGES, "stop_regex": [pattern], "seed": seed, "max_tokens": 40}
        content = http.post("/v1/chat/completions", json=chat).json()["choices"][0]["message"]["content"]
        assert not re.search(pattern, content)
