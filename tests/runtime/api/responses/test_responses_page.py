"""The page on responses: its blocks run, its limits are those that hold, and its claim on the cache is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import openai
import pytest
from live_server import LiveServer

from palmette.runtime.api.limits import KEPT_RESPONSE_BYTES, MOST_RESPONSES


def test_the_blocks_run_in_order(root: Path, tiny: LiveServer) -> None:
    page = (root / "docs" / "responses.md").read_text()
    scope: dict[str, Any] = {"server": tiny.url}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "docs/responses.md", "exec", dont_inherit=True), scope)
    assert len(scope["outputs"]) == 1
    assert scope["final"].status in ("completed", "incomplete")
    usage, before = scope["final"].usage, scope["response"].usage
    assert usage.input_tokens_details.cached_tokens > 0.98 * before.total_tokens  # all but the last tokens
    assert scope["parsed"].output_parsed.sky in ("clear", "cloudy")
    assert scope["tale"].status in ("completed", "incomplete")
    assert f"{MOST_RESPONSES:,} of them and {KEPT_RESPONSE_BYTES >> 20} MiB" in page


@pytest.mark.parametrize("sent_back", [False, True])
def test_a_conversation_computes_nothing_twice(tiny: LiveServer, sent_back: bool) -> None:
    """Sampled text would often encode to other tokens than the model wrote."""
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none") as client:
        history: list[Any] = [{"role": "user", "content": "Say something odd."}]
        previous: Any = None
        for seed in range(4):
            fields: dict[str, Any] = {"input": history}
            if previous is not None and not sent_back:
                fields = {"input": history[-1:], "previous_response_id": previous.id}
            response = client.responses.create(
                model="tiny", max_output_tokens=24, extra_body={"seed": seed, "regex": "[ a-zA-Z]{90}"}, **fields
            )
            if previous is not None:
                cached = response.usage.input_tokens_details.cached_tokens  # type: ignore[union-attr]
                assert cached >= previous.usage.total_tokens - 1
                assert cached < response.usage.input_tokens  # type: ignore[union-attr]
            history += [*response.output, {"role": "user", "content": f"And {seed}?"}]
            previous = response


def test_a_sampled_stream_is_the_sampled_answer(tiny: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none") as client:
        asked: Any = {"model": "tiny", "input": "Say something odd.", "max_output_tokens": 40, "top_logprobs": 2}
        for seed in range(3):
            whole = client.responses.create(**asked, extra_body={"seed": seed})
            events = list(client.responses.create(**asked, stream=True, extra_body={"seed": seed}))
            last = events[-1].response
            assert last.output_text == whole.output_text
            assert last.output[0].content == whole.output[0].content  # type: ignore[union-attr]
            assert last.usage.output_tokens == whole.usage.output_tokens  # type: ignore[union-attr]
            assert last.status == whole.status == "incomplete"


def test_many_in_the_background_leave_nothing_behind(tiny: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        begun = [
            client.responses.create(model="tiny", input=f"Tale {number}", background=True, max_output_tokens=200)
            for number in range(30)
        ]
        for response in begun[::2]:
            assert client.responses.cancel(response.id).status in ("cancelled", "incomplete", "completed")
        for response in begun[1::4]:
            client.responses.delete(response.id)
        for response in begun[3::4]:
            while client.responses.retrieve(response.id).status in ("queued", "in_progress"):
                pass
    assert tiny.frontend.abort(None) == 0
