"""The native surface: /generate, /tokenize, /detokenize, /abort, /flush_cache, /cache."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import orjson
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import free_at_end, read
from palmette.runtime.api.document import GENERATING, READING, operation
from palmette.runtime.api.errors import error_body
from palmette.runtime.api.json_response import JsonResponse, PlainResponse
from palmette.runtime.api.native.answers import (
    AbortAnswer,
    CacheAnswer,
    DetokenizeAnswer,
    FlushAnswer,
    GenerateAnswer,
    GenerateEvent,
    TokenizeAnswer,
)
from palmette.runtime.api.native.schemas import (
    AbortBody,
    DetokenizeBody,
    GenerateBody,
    GenerateSampling,
    TokenizeBody,
)
from palmette.runtime.api.openai.chat_messages import chat_tokens
from palmette.runtime.api.openai.replies import token_text
from palmette.runtime.api.request_ids import own_id
from palmette.runtime.api.streams import DONE, EventStream, event, merged, unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import Frontend, Generation, collect
from palmette.runtime.messages.replies import Finish, TokenLogprob, TreeDump
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import count, pack, unpack


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()
    frontend = surface.frontend

    @routes.post(
        "/generate",
        **operation(
            GenerateAnswer | list[GenerateAnswer],
            takes=GenerateBody,
            streams=GenerateEvent,
            errors=GENERATING,
            tag="native",
        ),
    )
    async def generate(request: Request) -> Response:
        """Continue texts, token ids or a chat. A list, or `n` above 1, is answered with a list."""
        body = await read(request, GenerateBody)
        surface.check_model(body.model)
        fields = body.fields()
        caller = caller_of(request)
        field, prompts, many = await _prompts(surface, body, body.cache_namespace(caller))
        generations = await surface.submit_all(
            prompts,
            _params(body, fields),
            request_id=own_id(request) if body.rid is None else caller.request_id(body.rid),
            count=fields.n,
            caller=caller,
            fields=body,
            watched=body.stream,
            prompt_logprobs_from=None if body.logprob_start_len == -1 else body.logprob_start_len,
            field=field,
        )
        many = many or fields.n > 1
        if body.stream:
            return EventStream(
                _events(generations, caller, many=many),
                lambda error: event(error_body(error)),
                headers=body.headers,
                owned=generations,
            )
        answers = await unless_gone(request, _answers(surface, generations, caller, many=many))
        return PlainResponse(answers, headers=body.headers)

    @routes.post("/tokenize", **operation(TokenizeAnswer, takes=TokenizeBody, errors=(*READING, 404), tag="native"))
    async def tokenize(request: Request) -> Response:
        """Token ids of a text or a chat."""
        body = await read(request, TokenizeBody)
        surface.check_model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequest("Give one of 'prompt' and 'messages'.", param="prompt")
        if body.messages is not None:
            tokens = await chat_tokens(surface, body, body.messages, caller_of(request).namespace())
        elif body.add_special_tokens:
            tokens = await frontend.tokens_of(body.prompt or "", special=body.special)
        else:
            tokens = await frontend.encode(body.prompt or "", special=body.special)

        free_at_end(request, tokens)

        def encoded() -> bytes:
            strings = [token_text(frontend.vocabulary, token) for token in tokens if body.return_token_strs]
            answer: dict[str, Any] = {
                "tokens": tokens,
                "count": len(tokens),
                "max_model_len": frontend.context_length,
                **({"token_strs": strings} if body.return_token_strs else {}),
            }
            return orjson.dumps(answer)

        return PlainResponse(await surface.beside(len(tokens), encoded), headers=body.headers)

    @routes.post(
        "/detokenize", **operation(DetokenizeAnswer, takes=DetokenizeBody, errors=(*READING, 404), tag="native")
    )
    async def detokenize(request: Request) -> Response:
        """The text of token ids."""
        body = await read(request, DetokenizeBody)
        surface.check_model(body.model)

        def encoded() -> bytes:
            frontend.check_tokens(body.tokens, "tokens")
            return orjson.dumps({"prompt": frontend.text_of(body.tokens, special=body.special)})

        return PlainResponse(await surface.beside(len(body.tokens), encoded), headers=body.headers)

    async def abort(request: Request) -> Response:
        """End open requests: each is answered with what it has."""
        body = await read(request, AbortBody)
        if body.rid is None and not body.abort_all:
            raise InvalidRequest("Give 'rid', or abort_all=true.", param="rid")
        caller = caller_of(request)
        if body.rid is None or body.abort_all:
            caller.check_admin("Aborting every request")
            return JsonResponse({"aborted": frontend.abort(None)})
        ids = {caller.request_id(body.rid)}
        if "/" not in body.rid:
            ids.add(body.rid)  # one that the server made, which nobody guesses
        return JsonResponse({"aborted": sum(map(frontend.abort, ids))})

    for path in ("/abort", "/abort_request"):  # ours, and SGLang's
        described = operation(AbortAnswer, takes=AbortBody, errors=(*READING, 403), tag="native")
        routes.post(path, **described)(abort)

    @routes.post("/flush_cache", **operation(FlushAnswer, errors=(401, 403, 503), tag="native"))
    async def flush_cache(request: Request) -> Response:
        """Drop every cached page that no request uses; safe while requests run. For administrators."""
        caller_of(request).check_admin("Flushing the cache")
        return JsonResponse({"flushed_pages": await frontend.flush_cache()})

    @routes.get("/cache", **operation(CacheAnswer, errors=(400, 401, 403, 503), tag="native"))
    async def cache(request: Request, tokens: bool = True) -> Response:
        """The radix tree, parents before children; `tokens=false` leaves out ids and texts. For administrators."""
        caller_of(request).check_admin("Looking into the cache")
        dump = await frontend.dump_tree()
        return PlainResponse(await frontend.offload.run(lambda: _dump_json(frontend, dump, tokens=tokens)))

    return routes


def _dump_json(frontend: Frontend, dump: TreeDump, *, tokens: bool) -> bytes:
    """Node by node, so that other threads have their turn between any two."""
    nodes: list[bytes] = []
    for node in dump.nodes:
        shown = msgspec.structs.asdict(node)
        packed = shown.pop("tokens")
        shown["token_count"] = count(packed)
        if tokens:
            shown |= {"tokens": unpack(packed), "text": frontend.text_of_packed(packed)}
        nodes.append(orjson.dumps(shown))
    return b'{"page_size":%d,"nodes":[%s]}' % (dump.page_size, b",".join(nodes))


async def _prompts(surface: Surface, body: GenerateBody, namespace: str) -> tuple[str, list[bytes], bool]:
    """The field that holds the prompts, packed token ids of each, and whether it is a list of them."""
    given = [name for name in ("text", "input_ids", "messages") if getattr(body, name) is not None]
    if len(given) != 1:
        raise InvalidRequest(
            f"Give one of 'text', 'input_ids' and 'messages' (got {given!r}).",
            param=given[0] if given else "text",
        )
    if body.messages is not None:
        return given[0], [pack(await chat_tokens(surface, body, body.messages, namespace))], False
    value = body.text if body.text is not None else body.input_ids
    many = isinstance(value, list) and bool(value) and isinstance(value[0], str | list)
    return given[0], await surface.prompts(value, given[0], special=True), many


def _params(body: GenerateBody, fields: GenerateSampling) -> SamplingParams:
    top = max(body.top_logprobs_num, fields.top_logprobs, body.top_logprobs)
    wanted = body.return_logprob or body.logprobs or fields.logprobs or top > 0
    return fields.sampling(max_tokens=fields.limit(), logprobs=wanted, top_logprobs=top)


async def _answers(surface: Surface, generations: Sequence[Generation], caller: Caller, *, many: bool) -> bytes:
    """As JSON; long ones are put together in a thread."""
    outputs = await collect(generations)
    prompts = sum(len(output.finish.prompt_logprobs or ()) for output in outputs)
    size = sum(len(output.tokens) + 10 * len(output.logprobs) for output in outputs) + 10 * prompts

    def encoded() -> bytes:
        answers = [
            {
                "text": output.text,
                "output_ids": list(output.tokens),
                "meta_info": _meta(caller.shown_id(generation.id), output.finish, output.logprobs),
            }
            for generation, output in zip(generations, outputs, strict=True)
        ]
        return orjson.dumps(answers if many else answers[0])

    return await surface.beside(size, encoded, used=outputs)


async def _events(generations: Sequence[Generation], caller: Caller, *, many: bool) -> AsyncIterator[bytes]:
    """Events hold what is new: `delta` (text), `output_ids`; the last of an output has `meta_info`."""
    async for index, chunk in merged(generations):
        data: dict[str, Any] = {"delta": chunk.text, "output_ids": unpack(chunk.tokens)}
        if many:
            data["index"] = index
        if chunk.logprobs is not None:
            data["output_token_logprobs"] = _logprobs(chunk.logprobs)
        if chunk.finish is not None:
            data["meta_info"] = _meta(caller.shown_id(generations[index].id), chunk.finish, ())
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
