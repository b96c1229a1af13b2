"""An answer in JSON, written by orjson; a long one goes out in pieces, so that others have their turn between them."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PIECE = 64 << 10  # bytes


class PlainResponse(Response):
    """JSON that is written already."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.body) <= PIECE:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        for begin in range(0, len(body), PIECE):
            last = begin + PIECE >= len(body)
            piece = bytes(body[begin : begin + PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": not last})
            await asyncio.sleep(0)


class JsonResponse(PlainResponse):
    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)
