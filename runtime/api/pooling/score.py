"""POST /v1/score: pairs of texts as vLLM has them, or the probabilities of labels behind prompts as SGLang has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import read
from palmette.runtime.api.document import GENERATING, operation
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.limits import MOST_PAIRS
from palmette.runtime.api.openai.replies import now
from palmette.runtime.api.pooling.inputs import (
    Continued,
    at,
    check_count,
    check_room,
    score_all,
    texts,
    token_lists,
    usage_json,
)
from palmette.runtime.api.pooling.relevance import Pair, judge
from palmette.runtime.api.pooling.schemas import LabelAnswer, ScoreAnswer, ScoreBody
from palmette.runtime.api.request_ids import own_id
from palmette.runtime.api.streams import unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.tokens import pack


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/score", **operation(ScoreAnswer | LabelAnswer, takes=ScoreBody, errors=GENERATING, tag="pooling"))
    async def score(request: Request) -> Response:
        """How well texts answer texts, as the served model judges it; or how likely labels come next."""
        body = await read(request, ScoreBody)
        surface.check_model(body.model)
        given = body.label_token_ids is not None or body.choices is not None
        answer = _labels(surface, body, caller_of(request)) if given else _pairs(surface, body, caller_of(request))
        kind, made = "scoring" if given else "list", now()
        head = {"id": own_id(request, "score-"), "object": kind, "created": made, "model": surface.model}
        return JsonResponse({**head, **await unless_gone(request, answer)}, headers=body.headers)

    return routes


# --- pairs ---


async def _pairs(surface: Surface, body: ScoreBody, caller: Caller) -> dict[str, Any]:
    judged = await judge(surface, pairs_of(body), body, caller)
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(judged.scores)]
    return {"data": data, "usage": usage_json(judged.cost)}


def pairs_of(body: ScoreBody) -> list[Pair]:
    """Raises InvalidRequest where the two sides don't fit each other."""
    for name in ("query", "items"):
        if getattr(body, name) is not None:
            raise InvalidRequest(
                f"{name!r} is given, and neither 'label_token_ids' nor 'choices'.",
                hint="Say which labels are scored, or give 'text_1' and 'text_2'.",
                param=name,
            )
    first_name, first = _side(body, "text_1", "queries")
    second_name, second = _side(body, "text_2", "documents")
    check_count(len(second), second_name, MOST_PAIRS)
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise InvalidRequest(
            f"{first_name!r} has {len(first)} texts and {second_name!r} {len(second)}.",
            hint="Give as many, or one text_1 for all.",
            param=first_name,
        )
    alone = isinstance(getattr(body, second_name), str)
    return [
        Pair(query, document, second_name if alone else f"{second_name}.{index}")
        for index, (query, document) in enumerate(zip(first, second, strict=True))
    ]


def _side(body: ScoreBody, *names: str) -> tuple[str, list[str]]:
    given = [name for name in names if getattr(body, name) is not None]
    if len(given) != 1:
        told = "both" if given else "neither"
        raise InvalidRequest(f"Give one of {names[0]!r} and {names[1]!r} (got {told}).", param=names[0])
    return given[0], texts(getattr(body, given[0]), given[0])


# --- labels ---


async def _labels(surface: Surface, body: ScoreBody, caller: Caller) -> dict[str, Any]:
    labels = await _continuations(surface, body)
    paths, prompts = await _prompts(surface, body)
    asked = [Continued(pack(prompt), labels) for prompt in prompts]
    for path, each in zip(paths, asked, strict=True):
        check_room(surface, each.longest, path)
    logprobs, cost = await score_all(
        surface, asked, namespace=body.cache_namespace(caller), scheduling=body.scheduling(caller)
    )
    return {
        "scores": [shares(row) if body.apply_softmax else [math.exp(value) for value in row] for row in logprobs],
        "logprobs": logprobs,
        "usage": usage_json(cost),
    }


async def _continuations(surface: Surface, body: ScoreBody) -> list[bytes]:
    if body.choices is not None and body.label_token_ids is not None:
        raise InvalidRequest("Give one of 'label_token_ids' and 'choices' (got both).", param="choices")
    if body.label_token_ids is not None:
        try:
            surface.frontend.check_tokens(body.label_token_ids)
        except InvalidRequest as error:
            raise at(error, "label_token_ids") from None
        return [pack([token]) for token in body.label_token_ids]
    labels = [await surface.frontend.encode(choice) for choice in body.choices or ()]
    for index, label in enumerate(labels):
        if not label:
            raise InvalidRequest(f"'choices.{index}' has no tokens, so it has no score.", param=f"choices.{index}")
    return list(map(pack, labels))


async def _prompts(surface: Surface, body: ScoreBody) -> tuple[list[str], list[list[int]]]:
    """Each prompt's path in the body, and its token ids."""
    for name in ("text_1", "text_2", "queries", "documents", "instruction", "method"):
        if name in body.model_fields_set:
            raise InvalidRequest(f"{name!r} has no labels.", hint="Give 'query', and maybe 'items'.", param=name)
    query, items = body.query, body.items
    if items is None:
        return ["query"], await token_lists(surface, query, "query", 1)
    if not isinstance(query, str):
        (ids,) = await token_lists(surface, query, "query", 1)
        query = ids
    many = items if isinstance(items, list) and not (items and isinstance(items[0], int)) else [items]
    check_count(len(many), "items", MOST_PAIRS)
    if any(type(item) is not type(query) for item in many):
        raise InvalidRequest("'query' and 'items' are not all texts or all token ids.", param="items")
    joined = [item + query if body.item_first else query + item for item in many]
    paths = ["items" if many is not items else f"items.{index}" for index in range(len(many))]
    return paths, await token_lists(surface, joined, "items", MOST_PAIRS)


def shares(logprobs: Sequence[float]) -> list[float]:
    """softmax"""
    most = max(logprobs)
    parts = [math.exp(value - most) for value in logprobs]
    total = math.fsum(parts)
    return [part / total for part in parts]
