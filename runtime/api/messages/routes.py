"""POST /v1/messages and /v1/messages/count_tokens, as Anthropic's clients speak them: text, thinking and tool calls,
whole or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import orjson
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import caller_of
from palmette.runtime.api.bodies import read
from palmette.runtime.api.chats import READING, open_chat, pieces
from palmette.runtime.api.document import GENERATING, operation
from palmette.runtime.api.errors import error_body
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.messages.answers import MessageAnswer, MessageError, MessageEvent, TokenCount
from palmette.runtime.api.messages.blocks import Blocks, Stop, whole
from palmette.runtime.api.messages.errors import PATH
from palmette.runtime.api.messages.schemas import PARTS, CountTokensBody, MessagesBody, TurnFields
from palmette.runtime.api.messages.turn import ModelReasoning, turn_of
from palmette.runtime.api.request_ids import own_id
from palmette.runtime.api.streams import EventStream, unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import ContextLengthExceeded, InvalidRequest, PalmetteError
from palmette.runtime.frontend import ChatFinish, ChatGeneration, ChatTurn
from palmette.runtime.frontend.chats import PreparedTurn
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.sampling import MAX_STOPS, SamplingParams
from palmette.runtime.messages.tokens import count


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        PATH,
        **operation(
            MessageAnswer, takes=MessagesBody, streams=MessageEvent, models=PARTS, errors=GENERATING,
            failure=MessageError, last_event="", tag="Anthropic",
        ),
    )  # fmt: skip
    async def messages(request: Request) -> Response:
        """The assistant's next message, as Anthropic's messages give it."""
        body = await read(request, MessagesBody)
        surface.check_model(body.model)
        caller = caller_of(request)
        params = params_of(body)
        prepared = await _prepared(surface, body, params, body.cache_namespace(caller))
        prepared = _fitted(surface, prepared, body.max_tokens)
        generation = open_chat(
            surface, prepared, request_id=own_id(request, "msg_"), caller=caller, fields=body, watched=body.stream
        )
        message = _Message(surface.model, generation, body, prepared)
        if body.stream:
            return EventStream(message.events(), _told, headers=body.headers, owned=[generation])
        return JsonResponse(await unless_gone(request, message.answer()), headers=body.headers)

    @routes.post(
        f"{PATH}/count_tokens",
        **operation(
            TokenCount, takes=CountTokensBody, models=PARTS, errors=GENERATING, failure=MessageError, tag="Anthropic"
        ),
    )
    async def count_tokens(request: Request) -> Response:
        """How many tokens the prompt of a message has: messages, system and tools, as the model's template has them."""
        body = await read(request, CountTokensBody)
        surface.check_model(body.model)
        prepared = await _prepared(surface, body, SamplingParams(), caller_of(request).namespace())
        return JsonResponse({"input_tokens": count(prepared.prompt.tokens)}, headers=body.headers)

    return routes


async def _prepared(surface: Surface, body: TurnFields, params: SamplingParams, namespace: str) -> PreparedTurn:
    chats = surface.frontend.chats
    reasoning = ModelReasoning(chats.formats.reasoning, chats.reasoning)
    size = len(body.tools) + pieces(body.messages)
    turn: ChatTurn = await surface.beside(READING * size, lambda: turn_of(body, reasoning))
    try:
        return await chats.prepare(turn, params, namespace=namespace)
    except ContextLengthExceeded as error:
        raise ContextLengthExceeded(
            f"prompt is too long: {error.message}", hint=error.hint, param=error.param
        ) from None


def params_of(body: MessagesBody) -> SamplingParams:
    """Raises InvalidRequest."""
    for index, text in enumerate(body.stop_sequences):
        if not text:
            path = f"stop_sequences.{index}"
            raise InvalidRequest(f"{path} is empty: nothing would be said.", hint="Leave it out.", param=path)
    params = body.sampling(max_tokens=body.max_tokens)
    stop = tuple(dict.fromkeys([*body.stop_sequences, *params.stop]))
    if len(stop) > MAX_STOPS:
        raise InvalidRequest(f"stop_sequences has {len(stop)} entries; at most {MAX_STOPS}.", param="stop_sequences")
    return msgspec.structs.replace(params, stop=stop)


def _fitted(surface: Surface, prepared: PreparedTurn, limit: int) -> PreparedTurn:
    """With as many of `limit` output tokens as the context has room for: clients must name a number, and most name one
    that is meant for any prompt. An answer that ends for that says so. Raises ContextLengthExceeded for a prompt that
    leaves no room, in the words that agents look for before they shorten a conversation."""
    tokens, context = count(prepared.prompt.tokens), surface.frontend.context_length
    most = context - 1 if limit else context
    if tokens > most:
        raise ContextLengthExceeded(
            f"prompt is too long: {tokens} tokens > {most} maximum.", hint="Shorten it.", param="messages"
        )
    params = msgspec.structs.replace(prepared.params, max_tokens=min(limit, context - tokens))
    return msgspec.structs.replace(prepared, params=params)


def _shows_thinking(body: MessagesBody) -> bool:
    thinking = body.thinking_config()
    return thinking is None or thinking.display != "omitted"


class _Message:
    """One answer: its generation is open already, so that a bad request is refused before any answer begins."""

    def __init__(self, model: str, generation: ChatGeneration, body: MessagesBody, prepared: PreparedTurn) -> None:
        self._model = model
        self._generation = generation
        self._prompt_tokens = count(prepared.prompt.tokens)
        room = prepared.params.max_tokens
        self._room = room if room != body.max_tokens else None  # where the context has less than was asked for
        self._blocks = Blocks(show_thinking=_shows_thinking(body))

    async def answer(self) -> dict[str, Any]:
        """Closes the generation, whatever happens."""
        events: list[dict[str, Any]] = []
        finish: ChatFinish | None = None
        try:
            async for chunk in self._generation:
                for told in chunk.events:
                    events += self._blocks.of(told)
                finish = chunk.finish
        finally:
            self._generation.close()
        assert finish is not None, "a generation ends with a finish, or raises"
        events += self._blocks.last()
        stop = self._blocks.stop(finish, self._room)
        return self._form(content=whole(events), stop=stop, usage=_usage(finish.usage, finish.reasoning_tokens))

    async def events(self) -> AsyncIterator[bytes]:
        begun = _usage(Usage(prompt_tokens=self._prompt_tokens), 0)
        yield _event({"type": "message_start", "message": self._form(content=[], stop=None, usage=begun)})
        async for chunk in self._generation:
            for told in chunk.events:
                for data in self._blocks.of(told):
                    yield _event(data)
            if chunk.finish is not None:
                for data in self._blocks.last():
                    yield _event(data)
                stop = self._blocks.stop(chunk.finish, self._room)
                usage = _usage(chunk.finish.usage, chunk.finish.reasoning_tokens)
                delta = {"stop_reason": stop.reason, "stop_sequence": stop.sequence}
                yield _event({"type": "message_delta", "delta": delta, "usage": usage})
        yield _event({"type": "message_stop"})

    def _form(self, *, content: list[dict[str, Any]], stop: Stop | None, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._generation.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": stop.reason if stop is not None else None,
            "stop_sequence": stop.sequence if stop is not None else None,
            "usage": usage,
        }


def _usage(usage: Usage, thinking_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": thinking_tokens},
    }


def _event(data: dict[str, Any]) -> bytes:
    """A server-sent event: Anthropic's clients go by its name."""
    name: str = data["type"]
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


def _told(error: PalmetteError) -> bytes:
    return _event(error_body(error, PATH))
