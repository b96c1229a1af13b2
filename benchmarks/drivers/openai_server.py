"""Drives a server over HTTP, streaming: OpenAI's completions (vLLM's, ours, …), or our and llama.cpp's own
endpoints, which stream token ids too.

A dialect says how a call is written and how an event is read; the driver does the rest and takes the times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from benchmarks.drivers.protocol import Arrival, Completion, DriverError
from benchmarks.text import Encode


@dataclass(frozen=True)
class Event:
    """One server-sent event, read. None: the event doesn't say."""

    text: str = ""
    tokens: tuple[int, ...] | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Dialect(Protocol):
    @property
    def path(self) -> str: ...

    def body(self, prompt: Sequence[int], max_tokens: int, schema: str | None = None) -> dict[str, Any]: ...

    def read(self, event: dict[str, Any]) -> Event: ...


@dataclass(frozen=True)
class OpenAICompletions:
    """/v1/completions with a list of ids as prompt; asks for output ids, which some servers then stream."""

    model: str
    path: str = "/v1/completions"

    def body(self, prompt: Sequence[int], max_tokens: int, schema: str | None = None) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": schema is None,
            **({} if schema is None else {"response_format": _response_format(schema)}),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }

    def read(self, event: dict[str, Any]) -> Event:
        choice = (event.get("choices") or [{}])[0]
        ids = choice.get("token_ids")
        usage = event.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        return Event(
            text=choice.get("text") or "",
            tokens=None if ids is None else tuple(ids),
            completion_tokens=usage.get("completion_tokens"),
            cached_tokens=details.get("cached_tokens"),
        )


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp's /completion: it streams ids, and its timings tell what was cached."""

    path: str = "/completion"

    def body(self, prompt: Sequence[int], max_tokens: int, schema: str | None = None) -> dict[str, Any]:
        return {
            "prompt": list(prompt),
            "n_predict": max_tokens,
            "temperature": 0,
            "ignore_eos": schema is None,
            **({} if schema is None else {"json_schema": json.loads(schema)}),
            "cache_prompt": True,
            "return_tokens": True,
            "stream": True,
        }

    def read(self, event: dict[str, Any]) -> Event:
        timings = event.get("timings") or {}
        return Event(
            text=event.get("content") or "",
            tokens=tuple(event.get("tokens") or ()),
            completion_tokens=event.get("tokens_predicted"),
            cached_tokens=timings.get("cache_n"),
        )


@dataclass(frozen=True)
class PalmetteNative:
    """Our server's /generate, which streams ids; the fields of `usage` stand in the last event's meta_info."""

    path: str = "/generate"

    def body(self, prompt: Sequence[int], max_tokens: int, schema: str | None = None) -> dict[str, Any]:
        return {
            "input_ids": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": schema is None,
            **({} if schema is None else {"json_schema": json.loads(schema)}),
            "stream": True,
        }

    def read(self, event: dict[str, Any]) -> Event:
        meta = event.get("meta_info") or {}
        return Event(
            text=event.get("delta") or "",
            tokens=tuple(event.get("output_ids") or ()),
            completion_tokens=meta.get("completion_tokens"),
            cached_tokens=meta.get("cached_tokens"),
        )


class ServerDriver:
    """Any server that speaks `dialect` at `url`.

    `encode` is used only where the server streams text alone.
    """

    def __init__(self, name: str, url: str, dialect: Dialect, encode: Encode, *, reset_path: str | None = None) -> None:
        self.name = name
        self._dialect = dialect
        self._encode = encode
        self._reset_path = reset_path
        # A connection a call: servers close kept ones after some requests or seconds, even under a new call.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._client = httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(600), limits=limits)

    async def complete(self, prompt: Sequence[int], max_tokens: int, schema: str | None = None) -> Completion:
        arrivals: list[tuple[float, Event]] = []
        body = json.dumps(self._dialect.body(prompt, max_tokens, schema))
        headers = {"content-type": "application/json"}
        started = time.perf_counter()
        try:
            async with self._client.stream("POST", self._dialect.path, content=body, headers=headers) as response:
                if response.status_code != 200:
                    answer = (await response.aread()).decode(errors="replace")
                    raise DriverError(f"{self.name} answered {response.status_code}: {answer[:500]}")
                async for line in response.aiter_lines():
                    if line.startswith("data:") and not line.startswith("data: [DONE]"):
                        event = json.loads(line[5:])
                        if "error" in event:
                            raise DriverError(f"{self.name} broke off: {event['error']}")
                        arrivals.append((time.perf_counter(), self._dialect.read(event)))
        except httpx.HTTPError as error:
            raise DriverError(f"{self.name}: {error!r}") from error
        wanted = max_tokens if schema is None else None
        return self._completion(tuple(prompt), wanted, started, time.perf_counter(), arrivals)

    def _completion(
        self,
        prompt: tuple[int, ...],
        wanted: int | None,
        started: float,
        finished: float,
        events: list[tuple[float, Event]],
    ) -> Completion:
        with_output = [(at, event) for at, event in events if event.tokens or event.text]
        if not with_output:
            raise DriverError(f"{self.name} streamed no token for a prompt of {len(prompt)}.")
        streamed = [token for _, event in with_output for token in event.tokens or ()]
        made = _last([event.completion_tokens for _, event in events]) or len(streamed)
        if wanted is not None and made != wanted:
            raise DriverError(f"{self.name} made {made} tokens where {wanted} were asked for.")
        # Ids can be missing: the server has only text, or it held some back inside a character of several
        # tokens.
        exact = len(streamed) == made
        text = "".join(event.text for _, event in with_output)
        return Completion(
            prompt=prompt,
            tokens=tuple(streamed if exact else self._encode(text)),
            started=started,
            finished=finished,
            arrivals=tuple(Arrival(at, max(1, len(event.tokens or ()))) for at, event in with_output),
            cached_tokens=_last([event.cached_tokens for _, event in events]),
            exact_ids=exact,
            text=text,
        )

    async def reset(self) -> None:
        if self._reset_path is not None:
            response = await self._client.post(self._reset_path)
            response.raise_for_status()

    async def close(self) -> None:
        await self._client.aclose()


def _response_format(schema: str) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "object", "schema": json.loads(schema), "strict": True}}


def _last(values: Sequence[int | None]) -> int | None:
    return next((value for value in reversed(values) if value is not None), None)
