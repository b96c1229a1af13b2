"""docs/messages.md runs; and Anthropic's client over a model that computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anthropic
import pydantic
import pytest
from live_server import LiveServer


@pytest.fixture
def client(tiny: LiveServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=tiny.url, api_key="none", max_retries=0) as made:
        yield made


def test_the_blocks_run_in_order(root: Path, tiny: LiveServer) -> None:
    page = (root / "docs" / "messages.md").read_text()
    scope: dict[str, Any] = {"server": tiny.url}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, scope)
    assert scope["answer"].stop_reason == "tool_use"
    assert all(0 <= len(block.input["city"]) <= 20 for block in scope["answer"].content)
    assert scope["last"].usage.cache_read_input_tokens > scope["last"].usage.input_tokens
    assert scope["message"].stop_reason in ("end_turn", "max_tokens")
    client: anthropic.Anthropic = scope["client"]
    counted = client.messages.count_tokens(model="default", messages=scope["messages"], tools=scope["tools"])
    usage = scope["last"].usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


class Mood(pydantic.BaseModel):
    mood: Literal["good", "bad"]
    certain: bool


def test_answers_of_a_model_that_computes(client: anthropic.Anthropic) -> None:
    given: Any = {"model": "tiny", "max_tokens": 24, "messages": [{"role": "user", "content": "Once"}]}
    given["extra_body"] = {"seed": 5}
    whole = client.messages.create(**given)
    with client.messages.stream(**given) as stream:
        final = stream.get_final_message()
    assert [block.text for block in final.content if block.type == "text"] == [
        block.text for block in whole.content if block.type == "text"
    ]
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert final.usage.cache_read_input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens - 1
    parsed = client.messages.parse(**{**given, "max_tokens": 60}, output_format=Mood)
    assert isinstance(parsed.parsed_output, Mood)


def test_a_schema_that_can_t_be_used_is_refused_before_a_stream_begins(client: anthropic.Anthropic) -> None:
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError, match=r"pattern|regex") as refused:
            client.messages.create(
                model="tiny",
                max_tokens=9,
                messages=[{"role": "user", "content": "x"}],
                stream=stream,
                output_config={"format": {"type": "json_schema", "schema": {"type": "string", "pattern": "(a"}}},
            )
        assert refused.value.body["type"] == "error"  # type: ignore[index]
