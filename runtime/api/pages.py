"""The documentation that a server shows of itself: /openapi.json, and /docs for people. Needs no network."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse

from palmette.runtime.api.json_response import PlainResponse
from palmette.runtime.api.reference import page
from palmette.runtime.frontend.offload import Offload


def router(app: FastAPI, offload: Offload) -> APIRouter:
    """`app`: whose document it is; it has every other route already, or gets it before the first request."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/openapi.json")
    async def openapi() -> PlainResponse:
        return PlainResponse(await offload.run(lambda: orjson.dumps(app.openapi())))

    @routes.get("/docs")
    async def docs() -> HTMLResponse:
        return HTMLResponse(await offload.run(lambda: page(app.openapi())))

    return routes
