"""The plain openai client, as an ordinary program uses it: a call at a time, all text sent with each.

What servers have beyond the API stands in a Flavour: how a call runs to its whole length, and how choices are held to.
Usage is added up from what the server answers. Called by systems.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import openai

from benchmarks.paper.workload import Message

TIMEOUT_SECONDS = 600
KEPT_SECONDS = 2.0  # servers close a kept connection after five
TOP_LOGPROBS = 20


@dataclass
class Usage:
    """Tokens over `calls` answered calls; `cached_tokens` as the server tells, None where it doesn't."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None

    def add(self, usage: Any) -> None:
        self.calls += 1
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        details = getattr(usage, "prompt_tokens_details", None)
        if details is not None and details.cached_tokens is not None:
            self.cached_tokens = (self.cached_tokens or 0) + details.cached_tokens


@dataclass(frozen=True)
class Flavour:
    """`whole`: what makes a call run to max_tokens. `held`: what holds an output to one of the choices."""

    whole: Mapping[str, Any]
    held: Callable[[Sequence[str]], dict[str, Any]]


def _one_of_structured(choices: Sequence[str]) -> dict[str, Any]:
    return {"structured_outputs": {"choice": list(choices)}}


def _one_of_grammar(choices: Sequence[str]) -> dict[str, Any]:
    return {"grammar": "root ::= " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)}


def _one_of_choices(choices: Sequence[str]) -> dict[str, Any]:
    return {"choices": list(choices)}


WHOLE: Mapping[str, Any] = {"ignore_eos": True}
FLAVOURS = {
    "vllm": Flavour(WHOLE, _one_of_structured),
    "llama-cpp": Flavour(WHOLE, _one_of_grammar),
    "palmette": Flavour(WHOLE, _one_of_choices),
}


class PlainClient:
    """A server at `url`."""

    def __init__(self, url: str, flavour: Flavour, *, model: str) -> None:
        # As many connections as there are calls; the library's own default allows a thousand, too.
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000, keepalive_expiry=KEPT_SECONDS)
        transport = httpx.AsyncClient(limits=limits, timeout=TIMEOUT_SECONDS)
        self._client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", http_client=transport, max_retries=0)
        self._flavour = flavour
        self._model = model
        self.usage = Usage()

    async def complete(self, prompt: str, max_tokens: int) -> str:
        answer = await self._client.completions.create(
            model=self._model, prompt=prompt, max_tokens=max_tokens, temperature=0, extra_body=dict(self._flavour.whole)
        )
        return self._text(answer)

    async def choose(self, prompt: str, choices: Sequence[str]) -> str:
        most = max(len(choice) for choice in choices)  # tokens are at least a letter
        answer = await self._client.completions.create(
            model=self._model, prompt=prompt, max_tokens=most, temperature=0, extra_body=self._flavour.held(choices)
        )
        return self._text(answer)

    async def letter(self, prompt: str, choices: Sequence[str]) -> str:
        answer = await self._client.completions.create(
            model=self._model, prompt=prompt, max_tokens=1, temperature=0, logprobs=TOP_LOGPROBS
        )
        self.usage.add(answer.usage)
        likeliest = first_top_logprobs(answer)
        return (
            max(choices, key=lambda choice: likeliest.get(choice, float("-inf"))) if likeliest.keys() & choices else ""
        )

    async def chat(self, messages: Sequence[Message], max_tokens: int) -> str:
        answer = await self._client.chat.completions.create(
            model=self._model, messages=list(messages), max_tokens=max_tokens, temperature=0,
            extra_body=dict(self._flavour.whole),
        )  # type: ignore[call-overload]  # fmt: skip
        return self._content(answer)

    async def fill(self, messages: Sequence[Message], schema: dict[str, Any], max_tokens: int) -> str:
        wanted = {"type": "json_schema", "json_schema": {"name": "object", "schema": schema, "strict": True}}
        answer = await self._client.chat.completions.create(
            model=self._model, messages=list(messages), max_tokens=max_tokens, temperature=0, response_format=wanted
        )  # type: ignore[call-overload]
        return self._content(answer)

    def _text(self, answer: Any) -> str:
        self.usage.add(answer.usage)
        return str(answer.choices[0].text)

    def _content(self, answer: Any) -> str:
        self.usage.add(answer.usage)
        return str(answer.choices[0].message.content or "")

    async def close(self) -> None:
        await self._client.close()


def first_top_logprobs(answer: Any) -> dict[str, float]:
    """Token texts and log-probabilities at the first token; llama.cpp writes them as chats do."""
    logprobs = answer.choices[0].logprobs
    if logprobs.top_logprobs:
        return dict(logprobs.top_logprobs[0])
    content = logprobs.content if hasattr(logprobs, "content") else (logprobs.model_extra or {})["content"]
    first = content[0] if isinstance(content[0], dict) else content[0].model_dump()
    return {entry["token"]: entry["logprob"] for entry in first["top_logprobs"]}
