"""POST /v1/chat/completions, as OpenAI's clients speak it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import read
from palmette.runtime.api.errors import error_body
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.openai_replies import chat_logprobs, now, usage_json
from palmette.runtime.api.schemas_chat import ChatBody
from palmette.runtime.api.streams import DONE, EventStream, event, merged, unless_gone
from palmette.runtime.api.surface import Surface, chat_messages
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import Output, collect
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.sampling import SamplingParams


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await read(request, ChatBody)
        surface.check_model(body.model)
        prompt = await surface.frontend.tokens_of(chat_messages(body.messages))
        call = _Chat(surface, body, prompt, caller_of(request))
        if body.stream:
            return call.stream()
        return JsonResponse(await unless_gone(request, call.answer()), headers=body.headers)

    return routes


class _Chat:
    """One request: its generations (opened at once, so that a bad one is refused before any answer begins)."""

    def __init__(self, surface: Surface, body: ChatBody, prompt: list[int], caller: Caller) -> None:
        self._surface = surface
        self._body = body
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = now()
        self._generations = surface.submit_all(
            [prompt], self._params(), request_id=self._id, count=body.n, caller=caller, fields=body
        )

    def _params(self) -> SamplingParams:
        body = self._body
        if body.top_logprobs is not None and not body.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs=true.", param="top_logprobs")
        if body.max_completion_tokens is not None and body.max_tokens not in (
            None,
            body.max_completion_tokens,
        ):
            raise InvalidRequest(
                f"max_tokens={body.max_tokens!r} and max_completion_tokens={body.max_completion_tokens!r} differ.",
                hint="Give one of them.",
                param="max_completion_tokens",
            )
        limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        return body.sampling(max_tokens=limit, logprobs=body.logprobs, top_logprobs=body.top_logprobs or 0)

    async def answer(self) -> dict[str, Any]:
        outputs = await collect(self._generations)
        choices = [self._choice(index, output) for index, output in enumerate(outputs)]
        usages = [output.usage for output in outputs]
        return {
            **self._head("chat.completion"),
            "choices": choices,
            "usage": usage_json(usages, prompts=usages[:1]),
        }

    def _choice(self, index: int, output: Output) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs:
            logprobs = chat_logprobs(self._surface.frontend.vocabulary, output.logprobs)
        message = {"role": "assistant", "content": output.text, "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": output.finish.reason,
        }

    def stream(self) -> EventStream:
        return EventStream(
            self._events(),
            lambda error: event(error_body(error)),
            headers=self._body.headers,
            owned=self._generations,
        )

    async def _events(self) -> AsyncIterator[bytes]:
        vocabulary = self._surface.frontend.vocabulary
        usages: dict[int, Usage] = {}
        for index in range(len(self._generations)):
            yield self._event(index, {"role": "assistant", "content": ""})
        async for index, chunk in merged(self._generations):
            logprobs = chat_logprobs(vocabulary, chunk.logprobs) if chunk.logprobs else None
            if chunk.text or logprobs:
                yield self._event(index, {"content": chunk.text}, logprobs=logprobs)
            if chunk.finish is not None:
                usages[index] = chunk.finish.usage
                yield self._event(index, {}, finish_reason=chunk.finish.reason)
        if self._wants_usage():
            ordered = [usages[index] for index in range(len(self._generations))]
            usage = usage_json(ordered, prompts=ordered[:1])
            yield event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})
        yield DONE

    def _event(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        body = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self._wants_usage():
            body["usage"] = None
        return event(body)

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._surface.model}

    def _wants_usage(self) -> bool:
        return self._body.stream_options is not None and self._body.stream_options.include_usage
