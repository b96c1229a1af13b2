"""The native surface: /generate, /tokenize, /detokenize, /abort, /flush_cache, /cache."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import caller_of
from palmette.runtime.api.bodies import parse, read
from palmette.runtime.api.errors import error_body
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.schemas_native import (
    AbortBody,
    DetokenizeBody,
    GenerateBody,
    SamplingObject,
    TokenizeBody,
)
from palmette.runtime.api.streams import DONE, EventStream, event, merged, unless_gone
from palmette.runtime.api.surface import Surface, chat_messages
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import Generation, collect
from palmette.runtime.messages.replies import Finish, TokenLogprob
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import unpack


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()
    frontend = surface.frontend

    @routes.post("/generate")
    async def generate(request: Request) -> Response:
        body = await read(request, GenerateBody)
        prompts, many = await _prompts(surface, body)
        generations = surface.submit_all(
            prompts,
            _params(body),
            request_id=body.rid or uuid.uuid4().hex,
            caller=caller_of(request),
            fields=body,
            prompt_logprobs_from=None if body.logprob_start_len == -1 else body.logprob_start_len,
        )
        if body.stream:
            return EventStream(
                _events(generations, many=many), lambda error: event(error_body(error)), owned=generations
            )
        answers = await unless_gone(request, _answers(generations))
        return JsonResponse(answers if many else answers[0])

    @routes.post("/tokenize")
    async def tokenize(request: Request) -> Response:
        body = await read(request, TokenizeBody)
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequest("Give one of 'prompt' and 'messages'.", param="prompt")
        if body.messages is not None:
            tokens = await frontend.tokens_of(chat_messages(body.messages))
        else:
            tokens = await frontend.encode(body.prompt or "", special=body.special)
        return JsonResponse({"tokens": tokens, "count": len(tokens), "max_model_len": frontend.context_length})

    @routes.post("/detokenize")
    async def detokenize(request: Request) -> Response:
        body = await read(request, DetokenizeBody)
        frontend.check_tokens(body.tokens)
        return JsonResponse({"prompt": frontend.text_of(body.tokens, special=body.special)})

    @routes.post("/abort")
    async def abort(request: Request) -> Response:
        body = await read(request, AbortBody)
        if body.rid is None and not body.abort_all:
            raise InvalidRequest("Give 'rid', or abort_all=true.", param="rid")
        if body.abort_all:
            caller_of(request).check_admin("Aborting every request")
        return JsonResponse({"aborted": frontend.abort(None if body.abort_all else body.rid)})

    @routes.post("/flush_cache")
    async def flush_cache(request: Request) -> Response:
        caller_of(request).check_admin("Flushing the cache")
        return JsonResponse({"flushed_pages": await frontend.flush_cache()})

    @routes.get("/cache")
    async def cache(request: Request) -> Response:
        caller_of(request).check_admin("Looking into the cache")
        dump = await frontend.dump_tree()
        nodes = [
            {
                **msgspec.structs.asdict(node),
                "tokens": unpack(node.tokens),
                "text": frontend.text_of_packed(node.tokens),
            }
            for node in dump.nodes
        ]
        return JsonResponse({"page_size": dump.page_size, "nodes": nodes})

    return routes


async def _prompts(surface: Surface, body: GenerateBody) -> tuple[list[list[int]], bool]:
    """Token ids of each prompt, and whether the body holds a list of prompts."""
    given = [name for name in ("text", "input_ids", "messages") if getattr(body, name) is not None]
    if len(given) != 1:
        raise InvalidRequest(
            f"Give one of 'text', 'input_ids' and 'messages' (got {given!r}).",
            param=given[0] if given else "text",
        )
    if body.messages is not None:
        return [await surface.frontend.tokens_of(chat_messages(body.messages))], False
    value = body.text if body.text is not None else body.input_ids
    many = isinstance(value, list) and bool(value) and isinstance(value[0], str | list)
    return await surface.prompts(value, given[0]), many


def _params(body: GenerateBody) -> SamplingParams:
    fields: SamplingObject = body
    if body.sampling_params is not None:
        beside = body.model_fields_set & SamplingObject.model_fields.keys() - {"logprobs", "top_logprobs"}
        if beside:
            raise InvalidRequest(
                f"{sorted(beside)!r} stand beside 'sampling_params'.",
                hint="Put every sampling field into one place.",
                param=sorted(beside)[0],
            )
        fields = parse(body.sampling_params, SamplingObject, "sampling_params")
    top = max(body.top_logprobs_num, fields.top_logprobs, body.top_logprobs)
    wanted = body.return_logprob or body.logprobs or fields.logprobs or top > 0
    return fields.sampling(max_tokens=fields.limit(), logprobs=wanted, top_logprobs=top)


async def _answers(generations: Sequence[Generation]) -> list[dict[str, Any]]:
    outputs = await collect(generations)
    return [
        {
            "text": output.text,
            "output_ids": list(output.tokens),
            "meta_info": _meta(generation.id, output.finish, output.logprobs),
        }
        for generation, output in zip(generations, outputs, strict=True)
    ]


async def _events(generations: Sequence[Generation], *, many: bool) -> AsyncIterator[bytes]:
    """Events hold what is new: `delta` (text), `output_ids`; the last of an output has `meta_info`."""
    async for index, chunk in merged(generations):
        data: dict[str, Any] = {"delta": chunk.text, "output_ids": unpack(chunk.tokens)}
        if many:
            data["index"] = index
        if chunk.logprobs is not None:
            data["output_token_logprobs"] = _logprobs(chunk.logprobs)
        if chunk.finish is not None:
            data["meta_info"] = _meta(generations[index].id, chunk.finish, ())
        yield event(data)
    yield DONE


def _meta(request_id: str, finish: Finish, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    usage = msgspec.structs.asdict(finish.usage)
    reason = {"type": finish.reason, "matched": finish.matched}
    meta: dict[str, Any] = {"id": request_id, "finish_reason": reason, **usage}
    if logprobs:
        meta["output_token_logprobs"] = _logprobs(logprobs)
    if finish.prompt_logprobs is not None:
        meta["input_token_logprobs"] = _logprobs(finish.prompt_logprobs)
    return meta


def _logprobs(logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    return [
        {
            "token": each.token,
            "logprob": each.logprob,
            "top": [{"token": token, "logprob": logprob} for token, logprob in each.top],
        }
        for each in logprobs
    ]
