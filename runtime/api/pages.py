"""The documentation that a server shows of itself: /openapi.json, and /docs for people. Needs no network."""

from __future__ import annotations

from collections.abc import Callable

import orjson
from fastapi import APIRouter, FastAPI

from palmette.runtime.api.json_response import PlainResponse
from palmette.runtime.api.reference import page
from palmette.runtime.frontend.offload import Offload


def router(app: FastAPI, offload: Offload) -> APIRouter:
    """`app`: whose document it is; it has every other route already, or gets it before the first request."""
    routes = APIRouter(include_in_schema=False)

    made: dict[str, bytes] = {}  # the document doesn't change: it is written once

    async def once(name: str, write: Callable[[], bytes]) -> bytes:
        if name not in made:
            made[name] = await offload.run(write)
        return made[name]

    @routes.get("/openapi.json")
    async def openapi() -> PlainResponse:
        return PlainResponse(await once("json", lambda: orjson.dumps(app.openapi())))

    @routes.get("/docs")
    async def docs() -> PlainResponse:
        written = await once("page", lambda: page(app.openapi()).encode())
        return PlainResponse(written, media_type="text/html; charset=utf-8")

    return routes
