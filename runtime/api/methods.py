"""Methods of HTTP beside those that routes name: HEAD is answered wherever GET is, and a 405 says what there is.

Knows the application's routes, not what they do. Used by app.py and errors.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


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


def _takes(route: BaseRoute, scope: Scope) -> bool:
    return route.matches(scope)[0] is Match.FULL
