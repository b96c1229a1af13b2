"""The HTTP application: every surface over one frontend. Made by launch; tests make their own."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI

from palmette.runtime.api import branches, errors, native, openai_chat, openai_completions, operations
from palmette.runtime.api.access import Access, Keys
from palmette.runtime.api.branches import BranchTable
from palmette.runtime.api.surface import Surface
from palmette.runtime.frontend import Frontend


def create_app(
    frontend: Frontend,
    *,
    keys: Keys = Keys(),
    names: Sequence[str] = (),
    branches_table: BranchTable | None = None,
) -> FastAPI:
    """The application. Where there are API keys every request but the probes must bear one (access.py).

    `names`: what the model is called.
    """
    app = FastAPI(title="Palmette", docs_url="/docs", redoc_url=None)
    surface = Surface(frontend, tuple(names) or (frontend.model,))
    table = branches_table or BranchTable()
    errors.install(app)
    app.include_router(operations.router(surface))
    app.include_router(openai_completions.router(surface))
    app.include_router(openai_chat.router(surface))
    app.include_router(native.router(surface))
    app.include_router(branches.router(surface, table))
    app.add_middleware(Access, keys=keys)
    return app
