"""Structured outputs through the processes of `palmette serve`: grammars cross to the engine and are compiled there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest
from launched import Server

pytestmark = pytest.mark.server


class Mood(pydantic.BaseModel):
    word: Literal["glad", "sad"]
    stars: int = pydantic.Field(ge=1, le=5)


def test_two_processes(start: Callable[..., Server]) -> None:
    with openai.OpenAI(base_url=f"{start().url}/v1", api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "How was it?"}]
        answer = client.chat.completions.parse(model="tiny", messages=messages, response_format=Mood, max_tokens=60)
        assert isinstance(answer.choices[0].message.parsed, Mood)
        fields = {"regex": "(yes|no), [a-z]{1,5}", "stop_regex": "[xyz]"}
        text = client.completions.create(model="tiny", prompt="So: ", max_tokens=20, extra_body=fields).choices[0].text
        assert re.fullmatch("(yes|no), [a-z]{1,5}", text) or re.fullmatch("(|yes|no|no, [a-w]*|yes, [a-w]*)", text)
        with pytest.raises(openai.BadRequestError, match="position 4"):
            client.completions.create(model="tiny", prompt="So: ", extra_body={"regex": "foo**"})
        assert client.completions.create(model="tiny", prompt="So: ", max_tokens=2).choices[0].finish_reason


def test_refusals_name_the_field_of_the_request(start: Callable[..., Server]) -> None:
    unique = {"type": "array", "items": {"type": "number", "multipleOf": 0.5}, "uniqueItems": True}
    schema = {"type": "object", "properties": {"x": unique}, "required": ["x"]}
    chat: Any = {"messages": [{"role": "user", "content": "So?"}], "max_tokens": 4}
    response_format = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    lark = {"grammar": {"kind": "lark", "text": "start: nothing"}}
    forms: list[tuple[str, dict[str, Any], str, str]] = [
        ("/v1/chat/completions", {**chat, "response_format": response_format}, "response_format.json_schema.schema",
         "#/properties/x"),
        ("/v1/completions", {"prompt": "a", "json_schema": schema}, "json_schema", "#/properties/x"),
        ("/v1/completions", {"prompt": "a", "ebnf": "root ::= nothing"}, "ebnf", "'nothing'"),
        ("/v1/completions", {"prompt": "a", "stop_regex": ["a", "b*"]}, "stop_regex", "'b*'"),
        ("/v1/responses", {"input": "a", "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}},
         "text.format.schema", "#/properties/x"),
        ("/generate", {"text": "a", "max_new_tokens": 4, "constraint": lark}, "constraint",
         "line 1, column 8"),
    ]  # fmt: skip
    with httpx.Client(base_url=start().url, timeout=30) as client:
        for path, body, param, said in forms:
            answer = client.post(path, json={"model": "tiny", **body})
            error = answer.json()["error"]
            assert answer.status_code == 400, (path, error)
            assert (error["param"], said in error["message"]) == (param, True), (path, error)
