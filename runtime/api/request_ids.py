"""What a request is called: every answer's `x-request-id`, and the log's and the engine's names for the same request.

A client may name its request itself, in a header of that name; else we do. Either way the server's own part is new with
each request, and the ids of answers and of the engine's requests are made of it, since two clients may choose the same
name. A middleware; knows nothing of what is asked. Used by every surface.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palmette.runtime.api.messages.errors import is_messages_path

HEADER = b"x-request-id"
ANTHROPIC_HEADER = b"request-id"  # what Anthropic's clients read
LONGEST = 128  # characters of a name that a client chooses
SCOPE_KEY = "palmette.request"

_WELL_FORMED = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,%d}" % (LONGEST - 1))


def _new() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class RequestName:
    """`own`: our part of it, 32 hexadecimal digits; `chosen`: the client's, where it has sent a well-formed one."""

    own: str = field(default_factory=_new)
    chosen: str = ""

    @property
    def shown(self) -> str:
        """What x-request-id says."""
        return self.chosen or f"req_{self.own}"

    def __str__(self) -> str:
        """As the log has it: both, where there are two."""
        return f"{self.chosen} (req_{self.own})" if self.chosen else self.shown

    def headers(self, path: str) -> list[tuple[bytes, bytes]]:
        """Of an answer on `path`."""
        value = self.shown.encode()
        return [(name, value) for name in ((HEADER, ANTHROPIC_HEADER) if is_messages_path(path) else (HEADER,))]


def name_in(scope: Scope) -> RequestName:
    """The name of the request of `scope`; a new one where nobody has named it."""
    found = scope.get(SCOPE_KEY)
    return found if isinstance(found, RequestName) else RequestName()


def own_id(request: Request, kind: str = "") -> str:
    """An id of this request's answer, and of what the engine does for it: `kind` and our part of the name."""
    return kind + name_in(request.scope).own


class RequestIds:
    """Names each request, and says the name in its answer. One that is named already keeps its name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or SCOPE_KEY in scope:
            await self._app(scope, receive, send)
            return
        name = scope[SCOPE_KEY] = RequestName(chosen=_chosen(scope))

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *name.headers(scope["path"])]}
            await send(message)

        await self._app(scope, receive, named)


def _chosen(scope: Scope) -> str:
    """The client's name of its request; empty where it sends none, several, or one that isn't well-formed."""
    given = [value for name, value in scope["headers"] if name == HEADER]
    return given[0].decode() if len(given) == 1 and _WELL_FORMED.fullmatch(given[0]) else ""
