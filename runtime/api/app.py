"""The HTTP application: every surface over one frontend. Made by launch; tests make their own."""

from __future__ import annotations

import hmac

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from palmette.runtime.api import branches, errors, native, openai_chat, openai_completions, operations
from palmette.runtime.api.branches import BranchTable
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.surface import Surface
from palmette.runtime.frontend import Frontend

OPEN_PATHS = ("/health", "/ready")  # probes carry no key


def create_app(frontend: Frontend, *, api_key: str | None = None, branches_table: BranchTable | None = None) -> FastAPI:
    """The application. `api_key`: every request but the probes must bear it."""
    app = FastAPI(title="Palmette", docs_url="/docs", redoc_url=None)
    surface = Surface(frontend)
    table = branches_table or BranchTable()
    errors.install(app)
    app.include_router(operations.router(surface))
    app.include_router(openai_completions.router(surface))
    app.include_router(openai_chat.router(surface))
    app.include_router(native.router(surface))
    app.include_router(branches.router(surface, table))
    if api_key is not None:
        app.add_middleware(ApiKey, key=api_key)
    return app


class ApiKey:
    """Lets through what bears the key (Authorization: Bearer …), compared in constant time."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                body = {
                    "message": "The API key is missing or wrong.",
                    "type": "authentication_error",
                    "param": None,
                    "code": "invalid_api_key",
                }
                await JsonResponse({"error": body}, status_code=401)(scope, receive, send)
                return
        await self._app(scope, receive, send)
