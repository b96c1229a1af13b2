"""The HTTP application: every surface over one frontend. Made by launch; tests make their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import fastapi.routing
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware

from palmette.runtime.api import document, errors, operations, pages
from palmette.runtime.api.access import Access, Keys
from palmette.runtime.api.bodies import IGNORED_HEADER, FreeLarge, Reading
from palmette.runtime.api.limits import Limits
from palmette.runtime.api.messages import routes as messages
from palmette.runtime.api.methods import HeadLikeGet, allowed_methods
from palmette.runtime.api.native import branches, programs
from palmette.runtime.api.native import routes as native
from palmette.runtime.api.native.branches import BranchTable
from palmette.runtime.api.openai import chat, completions
from palmette.runtime.api.pooling import embeddings, rerank, score
from palmette.runtime.api.request_ids import ANTHROPIC_HEADER, HEADER, RequestIds
from palmette.runtime.api.request_log import RequestLog
from palmette.runtime.api.responses import routes as responses
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import Frontend

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+|null")
ABOUT = "A radix-tree structured generation runtime: OpenAI's surfaces, and the native ones."


@dataclass(frozen=True)
class ApiOptions:
    """What `palmette serve` lets people choose of the HTTP surface.

    `lenient`: fields that would be refused for their name are left out, and named in x-palmette-ignored.
    `log_requests`: bodies in the log. `origins`: web pages that may call from a browser; none by default.
    """

    lenient: bool = False
    log_requests: bool = False
    origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Raises InvalidRequest for an origin that no browser sends."""
        for origin in self.origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise InvalidRequest(
                    f"--allow-origin {origin!r} is no origin.",
                    hint="Give a scheme and a host, with a port where it isn't the usual one, and nothing behind: "
                    "https://app.example.com",
                    param="allow_origin",
                )


def create_app(
    frontend: Frontend,
    *,
    keys: Keys = Keys(),
    names: Sequence[str] = (),
    branches_table: BranchTable | None = None,
    options: ApiOptions = ApiOptions(),
    version: str = "",
) -> FastAPI:
    """The application. Where there are API keys every request but the probes must bear one (access.py).

    `names`: what the model is called.
    """
    app = FastAPI(
        title="Palmette",
        version=version or "unknown",
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # a redirect would name the host that the client did
    )
    app.state.reading = Reading(options.limits, options.lenient, frontend.offload)
    if not all(name.strip() for name in names):
        raise InvalidRequest("--served-model-name is empty.", hint="Give a name.", param="served_model_name")
    surface = Surface(frontend, tuple(dict.fromkeys(names)) or (frontend.model,))
    table = branches_table or BranchTable()
    errors.install(app)
    app.include_router(operations.router(surface))
    app.include_router(completions.router(surface))
    app.include_router(chat.router(surface))
    app.include_router(messages.router(surface))
    app.include_router(responses.router(surface))
    for room in (embeddings, score, rerank):
        app.include_router(room.router(surface))
    app.include_router(native.router(surface))
    app.include_router(branches.router(surface, table))
    app.include_router(programs.router(surface))
    app.include_router(pages.router(app, frontend.offload))
    document.install(app)
    app.add_middleware(HeadLikeGet)
    app.add_middleware(FreeLarge, offload=frontend.offload)
    app.add_middleware(Access, keys=keys, origins=options.origins)
    if options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=[IGNORED_HEADER, "retry-after", HEADER.decode(), ANTHROPIC_HEADER.decode()],
        )
    if options.log_requests:
        app.add_middleware(RequestLog)
    app.add_middleware(RequestIds)
    return app


def warm_up(app: FastAPI) -> None:
    """What the first requests would wait for, one kind of request after the other: FastAPI makes a route's parts when
    it is first matched, and reads its source for its own errors. Takes a tenth of a second; call it before serving."""
    allowed_methods(app.routes, {"type": "http", "path": "/", "root_path": "", "headers": []})
    context = getattr(fastapi.routing, "_extract_endpoint_context", None)  # of newer versions
    if context is not None:
        for router in (app.router, *(getattr(route, "original_router", app.router) for route in app.routes)):
            for route in router.routes:
                if isinstance(route, APIRoute):
                    context(route.dependant.call)
    app.openapi()
