"""POST /v1/rerank, as Jina's and Cohere's clients and vLLM speak it: documents in the order of their relevance."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import read
from palmette.runtime.api.document import GENERATING, operation
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.limits import MOST_PAIRS
from palmette.runtime.api.pooling.inputs import check_count, usage_json
from palmette.runtime.api.pooling.relevance import Pair, judge
from palmette.runtime.api.pooling.schemas import RerankAnswer, RerankBody
from palmette.runtime.api.request_ids import own_id
from palmette.runtime.api.streams import unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest

PATHS = ("/v1/rerank", "/v2/rerank", "/rerank")  # Jina's, Cohere's, and without a version


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()

    async def rerank(request: Request) -> Response:
        """Documents in the order in which they answer a query, as the served model judges it."""
        body = await read(request, RerankBody)
        surface.check_model(body.model)
        answer = await unless_gone(request, _answer(surface, body, caller_of(request)))
        return JsonResponse({"id": own_id(request, "rerank-"), **answer}, headers=body.headers)

    for path in PATHS:
        documented = operation(RerankAnswer, takes=RerankBody, errors=GENERATING, tag="pooling")
        routes.post(path, **documented)(rerank)
    return routes


async def _answer(surface: Surface, body: RerankBody, caller: Caller) -> dict[str, Any]:
    check_count(len(body.documents), "documents", MOST_PAIRS)
    documents = [_text(document, f"documents.{index}") for index, document in enumerate(body.documents)]
    pairs = [Pair(body.query, text, f"documents.{index}") for index, text in enumerate(documents)]
    judged = await judge(surface, pairs, body, caller)
    best = sorted(range(len(pairs)), key=lambda index: (-judged.scores[index], index))[: body.top_n or None]
    results = []
    for index in best:
        result: dict[str, Any] = {"index": index, "relevance_score": judged.scores[index]}
        if body.return_documents:
            result["document"] = {"text": documents[index]}
        results.append(result)
    return {
        "object": "list",
        "model": surface.model,
        "results": results,
        "usage": usage_json(judged.cost),
    }


def _text(document: Any, path: str) -> str:
    if isinstance(document, dict) and set(document) == {"text"}:
        document = document["text"]
    if not isinstance(document, str):
        raise InvalidRequest(f"{path!r} is neither a text nor an object with a text alone.", param=path)
    return document
