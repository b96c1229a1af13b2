"""A response being made: one generation, read to its end for a client that waits, or beside it.

Used by routes.py, which has the routes. Knows the store, where it puts what has ended.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from palmette.runtime.api.access import Caller
from palmette.runtime.api.chats import open_chat
from palmette.runtime.api.errors import as_ours
from palmette.runtime.api.openai.replies import now
from palmette.runtime.api.responses.items import Item
from palmette.runtime.api.responses.output import Event, ResponseWriter
from palmette.runtime.api.responses.schemas import ResponsesBody
from palmette.runtime.api.responses.store import Kept, ResponseStore, Turn
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest, PalmetteError
from palmette.runtime.frontend.chats import PreparedTurn

# What the frontend calls as chat completions do → what it is called here.
_NAMES = {
    "response_format.json_schema.schema": "text.format.schema",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "prompt": "input",
}
_NAMED = re.compile(rf"\b({'|'.join(map(re.escape, list(_NAMES)[:-2]))})\b|'messages'")


@contextmanager
def named_as_here(*, formatted: bool = False) -> Iterator[None]:
    """Errors in it call fields by the names that they have here."""
    try:
        yield
    except PalmetteError as error:
        raise renamed(error, formatted=formatted) from error


def renamed(error: PalmetteError, *, formatted: bool = False) -> PalmetteError:
    """`formatted`: the schema that the engine is given is the one of text.format."""

    def here(text: str) -> str:
        return _NAMED.sub(lambda match: _NAMES.get(match.group(1) or "", "'input'"), text)

    param = error.param
    if formatted and param == "json_schema":
        param = "text.format.schema"
    for name, ours in _NAMES.items():
        if param is not None and (param == name or param.startswith(f"{name}.")):
            param = ours + param[len(name) :]
            break
    return type(error)(here(error.message), hint=here(error.hint), param=param)


@dataclass(frozen=True)
class Asked:
    """A request that was read: `given` are its own items, `previous` is what it goes on from."""

    id: str
    body: ResponsesBody
    caller: Caller
    given: list[Item]
    previous: Turn | None
    prepared: PreparedTurn

    def head(self, model: str) -> dict[str, Any]:
        """What of the response is known before it begins. It stands in several events: the large is encoded once."""
        body = self.body
        tools = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description or None,
                "parameters": tool.parameters,
                "strict": tool.strict,
            }
            for tool in self.prepared.turn.tools
        ]
        form = (body.text or {}).get("format") or {"type": "text"}
        return {
            "id": self.id,
            "object": "response",
            "created_at": now(),
            "background": body.background,
            "instructions": _written(body.instructions, "instructions"),
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "metadata": body.metadata,
            "model": model,
            "parallel_tool_calls": body.parallel_tool_calls,
            "previous_response_id": body.previous_response_id,
            "prompt_cache_diagnostics": None,  # not here, but there are clients that read it
            "reasoning": {"effort": self.prepared.turn.reasoning_effort, "summary": None},
            "store": body.store,
            "temperature": body.temperature,
            "text": {"format": _written(form, "text.format"), "verbosity": "medium"},
            "tool_choice": body.tool_choice,
            "tools": _written(tools, "tools"),
            "top_logprobs": body.top_logprobs or 0,
            "top_p": body.top_p,
            "truncation": "disabled",
            "user": body.user,
        }


def _written(value: Any, path: str) -> orjson.Fragment:
    """Raises InvalidRequest for what can be read and not written: deeper than 250 levels, or numbers beyond 64 bits."""
    try:
        return orjson.Fragment(orjson.dumps(value))
    except orjson.JSONEncodeError as error:
        raise InvalidRequest(f"{path} can't be written as JSON: {error}.", hint="Simplify it.", param=path) from None


Store = ResponseStore["Background"]


class Making:
    """One response. Its generation is open from here on: it must be read to its end, or closed."""

    def __init__(self, surface: Surface, asked: Asked, store: Store) -> None:
        self._surface = surface
        self._asked = asked
        self._store = store
        self._kept: Kept[Background] | None = None
        body, frontend = asked.body, surface.frontend
        self._formatted = body.text_format().type != "text"
        self.writer = ResponseWriter(asked.head(surface.model), frontend.vocabulary, queued=body.background)
        with named_as_here():
            self._generation = open_chat(
                surface, asked.prepared, request_id=asked.id, caller=asked.caller, fields=body, watched=body.stream
            )

    async def begun(self) -> None:
        """Waits a moment for a refusal of what the engine has to compile, and raises it."""
        with named_as_here(formatted=self._formatted):
            await self._generation.begun()

    async def aclose(self) -> None:
        self._generation.close()

    def abort(self) -> None:
        """Ask the engine to end it; it is read to its end as before."""
        self._surface.frontend.abort(self._asked.id)

    async def answer(self) -> bytes:
        """The whole response, as JSON. Raises the engine's error."""
        try:
            with named_as_here(formatted=self._formatted):
                async for chunk in self._generation:
                    self.writer.chunk(chunk)
            return self._settled()
        finally:
            self._generation.close()

    async def events(self) -> AsyncIterator[list[Event]]:
        """The events, as they come. An engine's error is told in the last of them."""
        yield self.writer.begin()
        try:
            async for chunk in self._generation:
                events = self.writer.chunk(chunk)
                if self.writer.ended:
                    break
                yield events
        except Exception as error:  # the boundary of a response: told in its own form
            events = self.writer.fail(renamed(as_ours(error, self._asked.id), formatted=self._formatted))
        finally:
            self._generation.close()
        events[-1]["response"] = orjson.Fragment(self._settled())
        yield events

    async def stream(self) -> AsyncIterator[bytes]:
        async for events in self.events():
            for each in events:
                yield encoded(each)

    def keep(self, work: Background) -> None:
        """Before its end."""
        self._kept = Kept(self._asked.id, self._asked.caller.tenant, self._turn(), status=self.writer.status, work=work)
        self._store.add(self._kept)

    def recount(self) -> None:
        """Its events are complete."""
        if self._kept is not None:
            self._store.recount(self._kept)

    def _settled(self) -> bytes:
        """The response at its end, which is kept where the client wants it."""
        asked, status = self._asked, self.writer.status
        answer = orjson.dumps(self.writer.response())
        if self._kept is not None:
            self._store.settle(self._kept, status=status, answer=answer, turn=self._turn())
        elif asked.body.store:
            self._store.add(Kept(asked.id, asked.caller.tenant, self._turn(), status=status, ended=answer))
        return answer

    def _turn(self) -> Turn:
        return Turn(self._asked.given, self.writer.items, self._asked.previous)


class Background:
    """A response that goes on without its client. Those who follow get the events from the first on."""

    def __init__(self, making: Making, *, events: bool) -> None:
        """`events`: keep them."""
        self._making: Making | None = making  # while it runs
        self._events: list[bytes] | None = [] if events else None
        self._changed = asyncio.Event()
        making.keep(self)
        self._task = asyncio.ensure_future(self._run(making))

    @property
    def size(self) -> int:
        return sum(map(len, self._events or ()))

    @property
    def followable(self) -> bool:
        return self._events is not None

    def answer(self) -> bytes:
        assert self._making is not None, "what has ended is kept as it was then"
        return orjson.dumps(self._making.writer.response())

    def stop(self) -> None:
        if self._making is not None:
            self._making.abort()

    async def stopped(self) -> None:
        """Aborts it and waits for its end."""
        self.stop()
        await asyncio.wait({self._task})

    async def follow(self, begin: int = 0) -> AsyncIterator[bytes]:
        """Its events from that number on, up to the last."""
        assert self._events is not None
        while True:
            changed = self._changed
            while begin < len(self._events):
                yield self._events[begin]
                begin += 1
            if self._making is None:
                return
            await changed.wait()

    async def _run(self, making: Making) -> None:
        try:
            async for events in making.events():
                if self._events is not None:
                    self._events += map(encoded, events)
                self._tell()
            making.recount()
        finally:
            await making.aclose()
            self._making = None
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def encoded(event: Event) -> bytes:
    kind: str = event["type"]
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
