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
    assert usage.input_tokens_details.cached_tokens >= before.total_tokens - 2  # the end of text, and the token before it
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
