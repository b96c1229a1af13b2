"""Structured outputs through the processes of `palmette serve`: grammars cross to the engine and are compiled there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import openai
import pydantic
import pytest
from test_launch import Server, start  # noqa: F401  # a fixture

pytestmark = pytest.mark.server


class Mood(pydantic.BaseModel):
    word: Literal["glad", "sad"]
    stars: int = pydantic.Field(ge=1, le=5)


def test_two_processes(start: Callable[..., Server]) -> None:  # noqa: F811
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
