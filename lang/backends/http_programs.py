"""Compiled programs on a Palmette server: one request to `/v1/programs`, and answers to what it asks on the way.

Used by http.py only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

import msgspec

from palmette.lang.backends.wire import Events, Exchange
from palmette.runtime.errors import EngineDied, from_info
from palmette.runtime.messages.programs import CallResult, ProgramEvent, RunProgram

PROGRAMS = "/v1/programs"


class ServerLike(Protocol):
    """What a run needs of its backend."""

    url: str

    def request(self, path: str, body: bytes) -> Exchange: ...

    def check(self, path: str, status: int, body: bytes) -> dict[str, Any]:
        """Raises the server's error of an answer that is none."""
        ...


class HttpProgramRun:
    """One run. It has an id once the server has said it."""

    def __init__(self, server: ServerLike, request: RunProgram) -> None:
        self._server = server
        self._request = request
        self._id = ""

    async def events(self) -> AsyncGenerator[ProgramEvent, None]:
        finished = False
        async with self._server.request(PROGRAMS, msgspec.json.encode(self._request)) as answer:
            if not answer.ok:
                self._server.check(PROGRAMS, answer.status, await answer.body())
            async for data in Events(answer):
                if data == b"[DONE]":
                    finished = True
                    continue
                event = _decode(data)
                if event.program is not None:
                    self._id = event.program
                elif event.over and event.error is not None:
                    raise from_info(event.error)
                else:
                    yield event
        if not finished:
            raise EngineDied(f"The server at {self._server.url} ended a stream early.", hint="Is it still running?")

    async def answer(self, result: CallResult) -> None:
        path = f"{PROGRAMS}/{self._id}/results"
        async with self._server.request(path, msgspec.json.encode(result)) as answer:
            self._server.check(path, answer.status, await answer.body())


_decode = msgspec.json.Decoder(ProgramEvent).decode
