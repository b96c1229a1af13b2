"""The OpenAPI document is what the server does: every route is typed, and answers have the form that it says."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from live_server import LiveServer
from server_page import with_tables

from palmette.runtime.api import limits
from palmette.runtime.api.document import event_data
from palmette.runtime.api.reference import endpoints, fields, models

CASES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/v1/completions", {"prompt": ["a", "b"], "max_tokens": 3, "logprobs": 2, "n": 2}),
    ("POST", "/v1/completions", {"prompt": [5, 6], "max_tokens": 3, "echo": True, "logprobs": 2}),
    ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3, "best_of": 2}),
    ("POST", "/generate", {"text": "a", "max_tokens": 3, "top_logprobs_num": 2, "logprob_start_len": 0}),
    ("POST", "/generate", {"input_ids": [5], "sampling_params": {"max_new_tokens": 3, "n": 2}}),
    ("POST", "/tokenize", {"prompt": "a b", "return_token_strs": True, "add_special_tokens": True}),
    ("POST", "/tokenize", {"messages": [{"role": "user", "content": "a"}]}),
    ("POST", "/detokenize", {"tokens": [5, 6]}),
    ("POST", "/abort", {"rid": "nobody"}),
    ("POST", "/flush_cache", None),
    ("GET", "/cache", None),
    ("GET", "/cache?tokens=false", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/tiny", None),
    ("GET", "/health", None),
    ("GET", "/ready", None),
    ("POST", "/v1/branches", {}),
]
STREAMS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "a", "max_tokens": 3, "logprobs": 1, "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 3, "echo": True, "logprobs": 1, "n": 2}),
    ("/generate", {"text": ["a", "b"], "max_tokens": 3, "return_logprob": True}),
]
WRONG: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("POST", "/v1/completions", {"prompt": 5}, 400),
    ("POST", "/v1/completions", {"model": "gpt-9"}, 404),
    ("GET", "/v1/models/gpt-9", None, 404),
    ("POST", "/tokenize", {"model": "gpt-9", "prompt": "a"}, 404),
    ("GET", "/cache?tokens=perhaps", None, 400),
    ("POST", "/v1/branches/none/extend", {"parts": []}, 410),
]


@pytest.fixture(scope="module")
def document(tiny: LiveServer) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{tiny.url}/openapi.json").json()
    return found


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=30) as client:
        yield client


def check(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def answer_of(document: dict[str, Any], method: str, path: str, status: int) -> dict[str, Any]:
    """The content of an answer, by media type."""
    for template, methods in document["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", ".+", re.escape(template))
        if re.fullmatch(pattern, path.partition("?")[0]) and method.lower() in methods:
            content: dict[str, Any] = methods[method.lower()]["responses"][str(status)]["content"]
            return content
    raise AssertionError(f"{method} {path} is not in the document")


@pytest.mark.parametrize(("method", "path", "body"), CASES)
def test_answers(document: dict[str, Any], http: httpx.Client, method: str, path: str, body: Any) -> None:
    response = http.request(method, path, json=body)
    assert response.status_code == 200, response.text
    content = answer_of(document, method, path, 200)
    check(document, content["application/json"]["schema"], response.json())


@pytest.mark.parametrize(("path", "body"), STREAMS)
def test_events(document: dict[str, Any], http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    response = http.post(path, json={**body, "stream": True})
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert events.pop() == "[DONE]"
    schema = event_data(answer_of(document, "POST", path, 200))
    for each in events:
        check(document, schema, json.loads(each))


@pytest.mark.parametrize(("method", "path", "body", "status"), WRONG)
def test_errors(document: dict[str, Any], http: httpx.Client, method: str, path: str, body: Any, status: int) -> None:
    response = http.request(method, path, json=body)
    assert response.status_code == status, response.text
    check(document, answer_of(document, method, path, status)["application/json"]["schema"], response.json())


def test_branches_stream_as_the_document_says(document: dict[str, Any], http: httpx.Client) -> None:
    branch = http.post("/v1/branches", json={}).json()["id"]
    path = f"/v1/branches/{branch}/generate"
    body = {"parts": [{"type": "Text", "text": "a"}], "params": {"max_tokens": 3, "logprobs": True}}
    schema = event_data(answer_of(document, "POST", path, 200))
    events = [line.removeprefix("data: ") for line in http.post(path, json=body).text.splitlines() if line]
    for each in events[:-1]:
        check(document, schema, json.loads(each))
    path = f"/v1/branches/{branch}/score"
    scores = http.post(path, json={"parts": [], "choices": ["a", "b"], "unconditional": True})
    check(document, answer_of(document, "POST", path, 200)["application/json"]["schema"], scores.json())


GRAMMARS: list[dict[str, Any]] = [
    {},
    {"choices": ["", "\u0006\f-\u001e\ufffd the tokens", "\u00e4\U0001f600", ";y"]},
    {"choices": ["only this"]},
    {"choices": [""]},
    {"regex": "[a-c]{2}\u00e4\u00f6+|no"},
    {"regex": "forced from end to end"},
    {
        "json_schema": {
            "type": "object",
            "properties": {"n\u00e4me": {"enum": ["x", None, 5]}},
            "required": ["n\u00e4me"],
        }
    },
    {"ebnf": 'root ::= "a" ("b" | "\u00df")* "c"'},
]
OPTIONS = st.fixed_dictionaries(
    {"max_tokens": st.integers(0, 12), "temperature": st.sampled_from([0, 1, 3.5]), "seed": st.integers(0, 3)},
    optional={
        "n": st.sampled_from([1, 2, 5, 36]),
        "jump": st.sampled_from(["bytes", "token", "off"]),
        "complete": st.booleans(),
        "stop": st.sampled_from(["a", ["t", "\u00f6"], ["the"]]),
        "stop_regex": st.sampled_from(["[ab]", ["tok|k"]]),
        "min_tokens": st.integers(0, 2),
        "ignore_eos": st.booleans(),
        "logit_bias": st.sampled_from([{"5": 100, "6": 100}, {"65": -100}]),
        "presence_penalty": st.sampled_from([-2, 1.8]),
        "top_k": st.sampled_from([1, 3]),
        "min_p": st.just(0.9),
        "stream": st.booleans(),
    },
)
TOPS = st.one_of(st.none(), st.sampled_from([0, 1, 5, 25, limits.MAX_TOP_LOGPROBS, limits.MAX_TOP_LOGPROBS + 1, -1]))


def _asking(path: str, top: int | None, wanted: bool, echo: bool) -> dict[str, Any]:
    """How each surface is asked for log-probabilities."""
    chat = {"messages": [{"role": "user", "content": "def"}]}
    more = {} if top is None else {"top_logprobs": top}
    match path:
        case "/v1/chat/completions":
            return {**chat, "logprobs": wanted, **more}
        case "/v1/completions":
            return {"prompt": ["def", "x"], "echo": echo, **({"logprobs": top} if wanted else {})}
        case "/generate":
            return {
                "text": ["def", "x"],
                "return_logprob": wanted,
                **more,
                **({"logprob_start_len": 0} if echo else {}),
            }
        case _:
            include = {"include": ["message.output_text.logprobs"]} if wanted else {}
            return {"input": "def", **include, **more}


def _numbers(value: Any, at: str = "") -> Iterator[float]:
    """Whatever stands for a log-probability, but for those that may be null."""
    for name, each in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        if name == "logprob" and (each is not None or "top" in at):
            yield each
        yield from _numbers(each, f"{at}.{name}")


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_log_probabilities_of_every_kind_of_output(
    document: dict[str, Any], http: httpx.Client, data: st.DataObject
) -> None:
    """Forced tokens, few alternatives, empty outputs: whatever is asked for, it is as the document says, or a 400."""
    path = data.draw(st.sampled_from(["/v1/chat/completions", "/v1/completions", "/generate", "/v1/responses"]))
    top, wanted, echo = data.draw(TOPS), data.draw(st.booleans()), data.draw(st.booleans())
    body = {**data.draw(OPTIONS), **data.draw(st.sampled_from(GRAMMARS)), **_asking(path, top, wanted, echo)}
    if path == "/v1/responses":
        body["max_output_tokens"] = body.pop("max_tokens")
        for name in ("n", "stop", "seed"):
            body.pop(name, None)
    response = http.post(path, json=body)
    content = answer_of(document, "POST", path, response.status_code)
    if response.status_code != 200:
        assert response.status_code == 400, response.text
        assert (top or 0) not in range(limits.MAX_TOP_LOGPROBS + 1) or response.json()["error"]["param"] is not None
        check(document, content["application/json"]["schema"], response.json())
        return
    event(f"{path}, {bool(body.get('stream'))}")
    told = [response.json()] if not body.get("stream") else _events(response.text)
    schema = content["application/json"]["schema"] if not body.get("stream") else event_data(content)
    for each in told:
        check(document, schema, each)
        assert all(math.isfinite(number) and number <= 0 for number in _numbers(each))


def _events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_every_route_says_what_it_takes_and_gives(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, each in methods.items():
            where = f"{method} {path}"
            assert each.get("description"), f"{where} has no docstring"
            for kind, content in each["responses"]["200"]["content"].items():
                assert content["schema"], f"{where} is not typed for {kind}"
            if method == "post" and path not in ("/flush_cache", "/v1/responses/{response_id}/cancel"):
                assert each["requestBody"]["content"]["application/json"]["schema"]["$ref"], where


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema({"$defs": document["components"]["schemas"]})
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named <= document["components"]["schemas"].keys()
    assert "$defs" not in json.dumps(document)


def test_fields_without_effect_are_in_the_schema_and_null_needs_no_mention(document: dict[str, Any]) -> None:
    rows = {row.name: row for row in fields(document, "CompletionBody")}
    assert "no effect" in rows["metadata"].text
    assert rows["prompt"].type.startswith("string or list")
    assert next(iter(rows)) == "prompt"
    assert fields(document, "DetokenizeBody")[0].default == "required"
    assert "suffix" not in rows


def test_the_page_for_people(http: httpx.Client, document: dict[str, Any]) -> None:
    page = http.get("/docs").text
    assert "<script" not in page
    assert "http://" not in page
    assert all(f"id='{name}'" in page for name in models(document))
    assert all(each.path in page for each in endpoints(document))


def test_the_server_page_holds_what_the_schemas_say(root: Path) -> None:
    assert (root / "docs" / "server.md").read_text() == with_tables(root), "write it anew: make server-page"


def test_every_limit_has_a_row() -> None:
    rows = limits.table()
    assert {row.flag for row in rows if row.flag} == {
        "--max-body-bytes",
        "--max-open-requests",
        "--max-queued-tokens",
        "--max-connections",
        "--head-seconds",
        "--body-seconds",
        "--send-seconds",
        "--keep-alive-seconds",
    }
