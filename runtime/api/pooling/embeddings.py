"""POST /v1/embeddings, as OpenAI's clients speak it: the served model's hidden states, pooled."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import read
from palmette.runtime.api.document import GENERATING, operation
from palmette.runtime.api.json_response import PlainResponse
from palmette.runtime.api.limits import MOST_INPUTS
from palmette.runtime.api.pooling.inputs import Cost, token_lists, usage_json
from palmette.runtime.api.pooling.schemas import EmbeddingAnswer, EmbeddingBody
from palmette.runtime.api.streams import unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/embeddings", **operation(EmbeddingAnswer, takes=EmbeddingBody, errors=GENERATING, tag="OpenAI"))
    async def embeddings(request: Request) -> Response:
        """Vectors of texts: the mean of the model's hidden states, or the state of the last token."""
        body = await read(request, EmbeddingBody)
        surface.check_model(body.model)
        _check_size(surface, body.dimensions)
        written = await unless_gone(request, _answer(surface, body, caller_of(request)))
        return PlainResponse(written, headers=body.headers)

    return routes


def _check_size(surface: Surface, dimensions: int | None) -> None:
    ready = surface.frontend.ready
    size = ready.embedding_size if ready is not None else None
    if dimensions is not None and size is not None and dimensions != size:
        raise InvalidRequest(
            f"dimensions={dimensions!r}: the model's vectors have {size} numbers and can't be shortened.",
            hint=f"Leave it out, or say {size}.",
            param="dimensions",
        )


async def _answer(surface: Surface, body: EmbeddingBody, caller: Caller) -> bytes:
    inputs = await token_lists(surface, body.input, "input", MOST_INPUTS)
    found = await surface.frontend.scores.embed(
        inputs, pooling=body.pooling, namespace=body.cache_namespace(caller), scheduling=body.scheduling(caller)
    )
    usage = usage_json(Cost(found.usage.prompt_tokens, found.usage.cached_tokens))
    numbers = sum(map(len, found.vectors)) // 4
    return await surface.beside(numbers, lambda: _written(found.vectors, body, surface.model, usage))


def _written(vectors: Sequence[bytes], body: EmbeddingBody, model: str, usage: dict[str, Any]) -> bytes:
    """The answer as JSON. Vector by vector, so that another thread needn't wait for all of them."""
    data = []
    for index, vector in enumerate(vectors):
        numbers = np.frombuffer(vector, "<f4")
        if body.normalize:
            numbers = normalized(numbers)
        if body.encoding_format == "base64":
            shown: Any = base64.b64encode(numbers.astype("<f4").tobytes()).decode()
        else:
            shown = numbers.astype(np.float32)
        item = {"object": "embedding", "index": index, "embedding": shown}
        data.append(orjson.Fragment(orjson.dumps(item, option=orjson.OPT_SERIALIZE_NUMPY)))
    return orjson.dumps({"object": "list", "data": data, "model": model, "usage": usage})


def normalized(vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """`vector` at length 1; zeros stay zeros. Its bits are the same on every machine: the sum is exact."""
    wide = vector.astype(np.float64)
    length = math.sqrt(math.fsum((wide * wide).tolist()))
    return (wide / length).astype(np.float32) if length > 0 else vector
