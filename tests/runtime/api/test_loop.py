"""Nothing takes more than a millisecond of the event loop: each kind of request, with all that makes one heavy.

What is counted is the CPU time of the loop's own thread, callback by callback. Each request is sent several times and
the least of the longest callbacks judged: what belongs to the work is there every time, what the machine does isn't.
Collections of garbage are left out: `serve` freezes what is there when it starts, which a test's process can't.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from frontends import wide_frontend
from live_server import LiveServer
from loop_watch import Long, LoopWatch

LONGEST = 0.01  # CPU seconds: ten times what is meant, for slow machines; the worst it is to catch took 38 ms
TIMES = 5

rng = random.Random(1)
WORDS = ("alpha", "beta", "gamma delta", "naïve", '{"a": 1}', "12345")


def words(count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def history(turns: int) -> list[dict[str, Any]]:
    return [each for _ in range(turns) for each in (user(words(20)), {"role": "assistant", "content": words(20)})]


def function(number: int) -> dict[str, Any]:
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    return {"name": f"tool_{number}", "description": words(8), "parameters": parameters}


def tools(count: int) -> list[dict[str, Any]]:
    return [{"type": "function", "function": function(number)} for number in range(count)]


def schema(fields: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"k{index}": {"type": "integer", "title": "x y"} for index in range(fields)},
    }


@dataclass(frozen=True)
class Case:
    path: str
    body: dict[str, Any] | None = None  # None: a GET
    times: int = TIMES


SCORED = {"logprobs": True, "top_logprobs": 20}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
CASES = {
    "short": Case(COMPLETIONS, {"prompt": "hello", "max_tokens": 8}),
    "stream": Case(COMPLETIONS, {"prompt": "hello", "max_tokens": 64, "stream": True}),
    "chat": Case(CHAT, {"messages": [user("hi")], "max_tokens": 8}),
    "long prompt": Case(COMPLETIONS, {"prompt": words(9_000), "max_tokens": 2}),  # 30,000 tokens
    "long prompt of ids": Case(COMPLETIONS, {"prompt": [5] * 30_000, "max_tokens": 2}),
    "body of 2 MB": Case(COMPLETIONS, {"prompt": words(400_000)[: 2 << 20], "max_tokens": 2}, 3),
    "many prompts": Case(COMPLETIONS, {"prompt": ["a b c"] * 128, "max_tokens": 2}),
    "many streams": Case(COMPLETIONS, {"prompt": ["a b c"] * 64, "n": 2, "max_tokens": 2, "stream": True}),
    "logprobs of a prompt": Case(COMPLETIONS, {"prompt": [5, 6] * 700, "max_tokens": 2, "echo": True, "logprobs": 20}),
    "logprobs of outputs": Case("/generate", {"text": "a", "max_tokens": 32, "top_logprobs": 64, "n": 16}),
    "logit bias": Case(COMPLETIONS, {"prompt": "a", "max_tokens": 2, "logit_bias": {f"{i}": 1.5 for i in range(512)}}),
    "too large a bias": Case(COMPLETIONS, {"prompt": "a", "logit_bias": {f"{i}": 1 for i in range(60_000)}}, 3),
    "large schema": Case(COMPLETIONS, {"prompt": "a", "max_tokens": 2, "json_schema": schema(15_000)}, 3),
    "middling schema": Case(COMPLETIONS, {"prompt": "a", "max_tokens": 2, "json_schema": schema(600)}),
    "large pattern": Case(COMPLETIONS, {"prompt": "a", "max_tokens": 2, "regex": "|".join(map(str, range(9000)))}),
    "choices": Case(COMPLETIONS, {"prompt": "a", "max_tokens": 2, "choices": [f"c {i}" for i in range(1000)]}),
    "stops": Case(COMPLETIONS, {"prompt": "a", "max_tokens": 64, "stop": [words(40)] * 64, "stream": True}),
    "unknown fields": Case(COMPLETIONS, {"prompt": "a", **{f"field{i}": i for i in range(20_000)}}, 3),
    "wrong ids": Case(COMPLETIONS, {"prompt": ["a"] + [1.5] * 10_000}),
    "1,000 tools": Case(CHAT, {"messages": [user("hi")], "tools": tools(1000), "max_tokens": 2}, 3),
    "many chats": Case(CHAT, {"messages": [user("hi")], "n": 128, "max_tokens": 2}),
    "logprobs of chats": Case(CHAT, {"messages": [user("hi")], "n": 16, **SCORED, "max_tokens": 32}),
    "long history": Case(CHAT, {"messages": history(40), "max_tokens": 2}),
    "long history of responses": Case("/v1/responses", {"input": history(60), "max_output_tokens": 2}),
    "long history of messages": Case("/v1/messages", {"model": "", "messages": history(60), "max_tokens": 2}),
    "tokenize 1 MB": Case("/tokenize", {"prompt": words(150_000)[: 1 << 20]}, 3),
    "tokenize into strings": Case("/tokenize", {"prompt": words(9_000), "return_token_strs": True}),
    "detokenize": Case("/detokenize", {"tokens": [5, 6, 7] * 100_000}, 3),
    "embeddings": Case("/v1/embeddings", {"input": ["a b"] * 100}),
    "rerank": Case("/v1/rerank", {"query": "a", "documents": [words(10) for _ in range(100)]}),
    "branch": Case("/v1/branches/run", {"steps": [{"parts": [{"type": "Text", "text": words(300)}]}] * 3}),
    "the tree": Case("/cache"),
    "metrics": Case("/metrics"),
    "document": Case("/openapi.json"),
    "page": Case("/docs"),
}  # fmt: skip


@pytest.fixture(scope="module")
def wide() -> Iterator[LiveServer]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)  # as launch does
    with LiveServer(wide_frontend) as live:
        yield live
    sys.setswitchinterval(before)


def test_what_takes_long_is_noticed(wide: LiveServer) -> None:
    watch = LoopWatch(limit=0.001)
    with watch.on(wide.loop):
        wide.soon(lambda: sum(range(300_000)))
    assert len(watch.long) == 1
    assert watch.callbacks >= 1


@pytest.mark.parametrize("name", CASES)
def test_no_callback_takes_long(wide: LiveServer, name: str) -> None:
    case = CASES[name]
    data = None if case.body is None else json.dumps(case.body).encode()
    longest: list[list[Long]] = []
    with httpx.Client(base_url=wide.url, timeout=60) as http:
        for _ in range(case.times):
            watch = LoopWatch(limit=LONGEST)
            with watch.on(wide.loop):
                answer = http.get(case.path) if data is None else http.post(case.path, content=data)
                wide.soon(lambda: None)  # the loop has come around: the request has been put away
            assert answer.status_code < 500, answer.text
            longest.append(watch.long)
            if not watch.long:
                return
    least = min(longest, key=lambda found: max(each.seconds for each in found))
    raise AssertionError(f"{name}: {least}")
