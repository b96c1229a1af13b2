"""POST /v1/chat/completions, as OpenAI's clients speak it: text, reasoning and tool calls, whole or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import read
from palmette.runtime.api.chat_tools import effort_of
from palmette.runtime.api.chats import READING, open_chats, pieces
from palmette.runtime.api.document import GENERATING, operation
from palmette.runtime.api.errors import error_body
from palmette.runtime.api.json_response import PlainResponse
from palmette.runtime.api.openai.chat_answers import ChatAnswer, ChatChunkAnswer
from palmette.runtime.api.openai.chat_messages import choice_of, messages_of, tools_of
from palmette.runtime.api.openai.chat_schemas import ChatBody
from palmette.runtime.api.openai.replies import chat_logprobs, now, usage_json
from palmette.runtime.api.request_ids import own_id
from palmette.runtime.api.streams import DONE, EventStream, event, merged, unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import ChatChunk, ChatFinish, ChatGeneration, ChatOutput, ChatTurn, collect_chats
from palmette.runtime.frontend.chat_prompt import ReasoningControl
from palmette.runtime.frontend.chats import PreparedTurn
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.parsers.protocol import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    Event,
    ReasoningDelta,
    TextDelta,
)

PARTS_OF_CHOICE = 15  # putting one together takes as long as writing so many values of an answer


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        "/v1/chat/completions",
        **operation(ChatAnswer, takes=ChatBody, streams=ChatChunkAnswer, errors=GENERATING, tag="OpenAI"),
    )
    async def chat(request: Request) -> Response:
        """The assistant's next message, as OpenAI's chat completions give it."""
        body = await read(request, ChatBody)
        surface.check_model(body.model)
        caller = caller_of(request)
        size = READING * (pieces(body.messages) + len(body.tools))
        turn = await surface.beside(size, lambda: turn_of(body, surface.frontend.chats.reasoning))
        prepared = await surface.frontend.chats.prepare(turn, params_of(body), namespace=body.cache_namespace(caller))
        call = _Chat(surface, body, own_id(request, "chatcmpl-"))
        await call.open(prepared, caller)
        if body.stream:
            return call.stream()
        return PlainResponse(await unless_gone(request, call.answer()), headers=body.headers)

    return routes


def turn_of(body: ChatBody, control: ReasoningControl) -> ChatTurn:
    """Raises InvalidRequest or Unsupported, naming the field. `control`: what the model's template takes."""
    choice = choice_of(body)
    if body.continue_final_message and body.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt are both true; a turn is continued or begun.",
            hint="Leave out one of them.",
            param="add_generation_prompt",
        )
    return ChatTurn(
        messages=messages_of(body, body.messages),
        tools=tools_of(body),
        tool_choice=choice.choice,
        allowed_tools=choice.allowed,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=effort_of(body, body.reasoning_effort, control, "reasoning_effort"),
        separate_reasoning=body.separate_reasoning,
        variables=body.chat_template_kwargs,
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=body.continue_final_message,
        jump=body.jump,
        complete=body.complete is True,
    )


def params_of(body: ChatBody) -> SamplingParams:
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs=true.", param="top_logprobs")
    if body.max_completion_tokens is not None and body.max_tokens not in (None, body.max_completion_tokens):
        raise InvalidRequest(
            f"max_tokens={body.max_tokens!r} and max_completion_tokens={body.max_completion_tokens!r} differ.",
            hint="Give one of them.",
            param="max_completion_tokens",
        )
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return body.sampling(max_tokens=limit, logprobs=body.logprobs, top_logprobs=body.top_logprobs or 0)


class _Chat:
    """One request: its generations (all opened before any answer begins, so that a bad one is refused)."""

    def __init__(self, surface: Surface, body: ChatBody, answer_id: str) -> None:
        self._surface = surface
        self._body = body
        self._id = answer_id
        self._created = now()
        self._generations: list[ChatGeneration] = []

    async def open(self, prepared: PreparedTurn, caller: Caller) -> None:
        """Raises what the request is refused for; nothing is open then."""
        body = self._body
        self._generations = await open_chats(
            self._surface, prepared, request_id=self._id, count=body.n, caller=caller, fields=body, watched=body.stream
        )

    async def answer(self) -> bytes:
        """The answer as JSON; a long one is put together in a thread."""
        outputs = await collect_chats(self._generations)
        size = PARTS_OF_CHOICE * len(outputs) + len(outputs[0].text) // 10 * len(outputs)
        if self._body.logprobs:
            size += sum(len(output.logprobs) for output in outputs) * (10 + 10 * (self._body.top_logprobs or 0))
        return await self._surface.beside(size, lambda: orjson.dumps(self._answer(outputs)), used=outputs)

    def _answer(self, outputs: Sequence[ChatOutput]) -> dict[str, Any]:
        choices = [self._choice(index, output) for index, output in enumerate(outputs)]
        finishes = [output.finish for output in outputs]
        return {**self._head("chat.completion"), "choices": choices, "usage": chat_usage(finishes)}

    def _choice(self, index: int, output: ChatOutput) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs:
            logprobs = chat_logprobs(self._surface.frontend.vocabulary, output.logprobs)
        message: dict[str, Any] = {"role": "assistant", "content": output.content, "refusal": None}
        if output.reasoning and self._body.include_reasoning:
            message["reasoning_content"] = output.reasoning
        if output.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in output.calls
            ]
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": output.finish.reason}

    def stream(self) -> EventStream:
        return EventStream(
            self._events(),
            lambda error: event(error_body(error)),
            headers=self._body.headers,
            owned=self._generations,
        )

    async def _events(self) -> AsyncIterator[bytes]:
        finishes: dict[int, ChatFinish] = {}
        deltas = [_Deltas(self._body) for _ in self._generations]
        for index in range(len(self._generations)):
            yield self._event(index, deltas[index].first())
        async for index, chunk in merged(self._generations):
            for data in self._chunk(index, chunk, deltas[index]):
                yield data
            if chunk.finish is not None:
                finishes[index] = chunk.finish
        if self._wants_usage():
            usage = chat_usage([finishes[index] for index in range(len(self._generations))])
            yield event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})
        yield DONE

    def _chunk(self, index: int, chunk: ChatChunk, deltas: _Deltas) -> list[bytes]:
        """The events of one chunk; its log-probabilities stand in the first."""
        logprobs = None
        if chunk.logprobs:
            logprobs = chat_logprobs(self._surface.frontend.vocabulary, chunk.logprobs)
        shown = [delta for each in chunk.events if (delta := deltas.of(each))]
        if chunk.finish is not None:
            shown += deltas.last()
        if logprobs is not None and not shown:
            shown.append({})
        data = [self._event(index, delta, logprobs if at == 0 else None) for at, delta in enumerate(shown)]
        if chunk.finish is not None:
            data.append(self._event(index, {}, finish_reason=chunk.finish.reason))
        return data

    def _event(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        *,
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


class _Deltas:
    """One choice's deltas, such that they add up to the message of a whole answer."""

    def __init__(self, body: ChatBody) -> None:
        self._may_call = bool(body.tools) and body.tool_choice != "none"
        self._include_reasoning = body.include_reasoning
        self._said = False  # text, or a call

    def first(self) -> dict[str, Any]:
        """A message that may turn out to be calls alone has no content yet: null is what those have."""
        return {"role": "assistant", "content": None if self._may_call else ""}

    def of(self, told: Event) -> dict[str, Any]:
        """Empty where there is nothing to say."""
        match told:
            case TextDelta(text=text):
                self._said = True
                return {"content": text}
            case ReasoningDelta(text=text):
                return {"reasoning_content": text} if self._include_reasoning else {}
            case CallBegun(index=index, id=call_id, name=name):
                self._said = True
                function = {"name": name, "arguments": ""}
                return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
            case ArgumentsDelta(index=index, text=text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
            case CallEnded():
                return {}

    def last(self) -> list[dict[str, Any]]:
        return [{"content": ""}] if self._may_call and not self._said else []


def chat_usage(finishes: Sequence[ChatFinish]) -> dict[str, Any]:
    """Of the outputs of one prompt."""
    usages = [finish.usage for finish in finishes]
    reasoning = sum(finish.reasoning_tokens for finish in finishes)
    return {
        **usage_json(usages, prompts=usages[:1]),
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
