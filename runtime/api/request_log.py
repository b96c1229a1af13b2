"""`--log-requests`: each request's body in the log. Without it no log line holds what a client sent.

A middleware; knows nothing of what a body means.
"""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palmette.runtime.api.request_ids import name_in

LONGEST_BODY = 64 << 10  # bytes shown of one

# What a client sends stays in its line, and moves no terminal: ends of lines and escapes are written out.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_CONTROLS |= {code: f"\\u{code:04x}" for code in (0x2028, 0x2029, 0x202E)}

log = logging.getLogger(__name__)


class RequestLog:
    """A line when an answer ends: method, path, status, milliseconds, the request's id, body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        status = 0
        begun = time.monotonic()

        async def received() -> Message:
            message = await receive()
            if len(body) < LONGEST_BODY:
                body.extend(message.get("body", b"")[: LONGEST_BODY - len(body)])
            return message

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, received, sent)
        finally:
            shown = body.decode("utf-8", "replace").translate(_CONTROLS)
            seconds = time.monotonic() - begun
            of = (scope["method"], scope["path"].translate(_CONTROLS), status, seconds * 1e3, name_in(scope))
            log.info("%s %s %d %.0f ms %s %s", *of, shown)
