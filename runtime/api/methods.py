"""Methods of HTTP beside those that routes name: HEAD is answered wherever GET is, a 405 says what there is, and a 404
which path was meant.

Knows the application's routes, not what they do. Used by app.py and errors.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
MOST_PARTS = 8  # of a path whose meaning is guessed


class HeadLikeGet:
    """A HEAD request takes the way of a GET; the server below leaves out the body, and keeps its length."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> str:
    """The value of `Allow`: every method that the scope's path has on some route. The routes are asked, since those
    behind an included router are not listed."""
    routes = list(routes)
    found = [name for name in METHODS if any(_takes(route, {**scope, "method": name}) for route in routes)]
    return ", ".join(sorted([*found, *(["HEAD"] if "GET" in found else [])]))


def meant_path(routes: Iterable[BaseRoute], scope: Scope) -> str | None:
    """The path that a client with a wrong base URL meant: without /v1, with two of them, or with an endpoint in it."""
    routes = list(routes)
    parts = scope["path"].strip("/").split("/")
    if len(parts) > MOST_PARTS:
        return None
    for at in range(len(parts)):
        path = "/v1/" + "/".join(parts[at:])
        if path != scope["path"] and any(_takes(route, {**scope, "path": path}) for route in routes):
            return path
    return None


def _takes(route: BaseRoute, scope: Scope) -> bool:
    return route.matches(scope)[0] is Match.FULL
