"""Names that clients choose and the server uses as its own: each is a value, or refused; none is a fault."""

from __future__ import annotations

import httpx
import pytest
from live_server import LiveServer

NAMES = ["self", "cls", "messages", "tools", "context", "loop", "range", "namespace", "raise_exception", "strftime_now",
         "tojson", "bos_token", "add_generation_prompt", "continue_final_message", "extra", "__class__", "", "a b",
         "\u0000"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_variables_of_the_template(tiny: LiveServer, name: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    with httpx.Client(base_url=tiny.url, timeout=30) as http:
        plain = http.post("/tokenize", json={"messages": body["messages"]}).json()["count"]
        answer = http.post("/v1/chat/completions", json={**body, "chat_template_kwargs": {name: 1}})
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        assert answer.json()["usage"]["prompt_tokens"] == plain
