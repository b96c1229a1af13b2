"""/v1/responses, as OpenAI's clients speak it: items in and out, conversations kept here, streams, and responses that
go on in the background."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import IGNORED_HEADER, read
from palmette.runtime.api.chat_tools import effort_of
from palmette.runtime.api.chats import READING, pieces
from palmette.runtime.api.document import GENERATING, operation
from palmette.runtime.api.json_response import JsonResponse, PlainResponse
from palmette.runtime.api.request_ids import own_id
from palmette.runtime.api.responses.answers import (
    DeletedResponse,
    InputItems,
    InputTokens,
    ResponseAnswer,
    ResponseEvent,
)
from palmette.runtime.api.responses.items import Item, choice_of, messages_of, read_items, references, tools_of
from palmette.runtime.api.responses.making import Asked, Background, Making, Store, encoded, named_as_here
from palmette.runtime.api.responses.output import fault
from palmette.runtime.api.responses.schemas import InputFields, InputTokensBody, ResponsesBody
from palmette.runtime.api.responses.store import ResponseStore, Turn, conversation, turns_up_to
from palmette.runtime.api.streams import EventStream, unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import ChatTurn
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import count as count_tokens

KEPT = (400, 401, 404)  # how asking for a kept response may fail
BYTES_OF_ITEMS = 100  # of kept ones: reading them takes as long as writing one value (surface.beside)
LONGEST_PAGE = 100
WITHOUT_EFFECT = ("include", "include_obfuscation")  # parameters of a query: a response has what it was made with
TAG = "OpenAI"

Given = tuple[list[Item], ChatTurn]


def router(surface: Surface, store: Store | None = None) -> APIRouter:
    routes = APIRouter(prefix="/v1/responses")
    kept_here: Store = ResponseStore() if store is None else store

    @routes.post(
        "", **operation(ResponseAnswer, takes=ResponsesBody, streams=ResponseEvent, errors=GENERATING, tag=TAG)
    )
    async def create(request: Request) -> Response:
        """The model's answer to items: messages, calls and what they returned, reasoning."""
        body = await read(request, ResponsesBody)
        caller = caller_of(request)
        making = Making(surface, await _asked(surface, kept_here, body, caller, own_id(request)), kept_here)
        if body.background:
            return await _in_background(making, body)
        if body.stream:
            return EventStream(
                making.stream(), lambda error: encoded(fault(error)), headers=body.headers, owned=[making]
            )
        return PlainResponse(await unless_gone(request, making.answer()), headers=body.headers)

    @routes.post("/input_tokens", **operation(InputTokens, takes=InputTokensBody, errors=GENERATING, tag=TAG))
    async def count(request: Request) -> Response:
        """How many tokens a response's input would have."""
        body = await read(request, InputTokensBody)
        surface.check_model(body.model)
        body.check_truncation()
        caller = caller_of(request)
        previous = _previous(kept_here, body, caller)
        _, turn = await _read(surface, kept_here, body, caller, previous, own_id(request))
        with named_as_here():
            prepared = await surface.frontend.chats.prepare(turn, SamplingParams(), namespace=caller.namespace())
        answer = {"object": "response.input_tokens", "input_tokens": count_tokens(prepared.prompt.tokens)}
        return JsonResponse(answer, headers=body.headers)

    @routes.get("/{response_id}", **operation(ResponseAnswer, streams=ResponseEvent, errors=KEPT, tag=TAG))
    async def retrieve(
        request: Request,
        response_id: str,
        stream: bool = False,
        starting_after: Annotated[int | None, Query(ge=0)] = None,
    ) -> Response:
        """A kept response, as it is now. `stream`: the events of one that was made with background and stream, from
        the first on, or those behind the sequence number `starting_after`."""
        _check_query(request, "stream", "starting_after")
        kept = kept_here.get(response_id, caller_of(request).tenant)
        if not stream:
            if starting_after is not None:
                raise InvalidRequest("starting_after needs stream=true.", param="starting_after")
            return PlainResponse(kept.answer(), headers=_ignored(request))
        if kept.work is None or not kept.work.followable:
            raise InvalidRequest(
                f"The events of response {response_id!r} were not kept.",
                hint="Make it with background=true and stream=true, or retrieve it without stream.",
                param="stream",
            )
        events = kept.work.follow(0 if starting_after is None else starting_after + 1)
        return EventStream(events, lambda error: encoded(fault(error)), headers=_ignored(request))

    @routes.delete("/{response_id}", **operation(DeletedResponse, errors=KEPT, tag=TAG))
    async def delete(request: Request, response_id: str) -> Response:
        """Forget a response; one that runs is aborted. Conversations that went on from it keep its items."""
        kept_here.remove(response_id, caller_of(request).tenant)
        return JsonResponse({"id": response_id, "object": "response", "deleted": True})

    @routes.post("/{response_id}/cancel", **operation(ResponseAnswer, errors=KEPT, tag=TAG))
    async def cancel(request: Request, response_id: str) -> Response:
        """End a background response; what has come of it stays. One that has ended is answered as it is."""
        kept = kept_here.get(response_id, caller_of(request).tenant)
        if kept.work is None:
            raise InvalidRequest(
                f"Response {response_id!r} was not made in the background.",
                hint="Only those can be cancelled; a stream ends when its connection is closed.",
                param="response_id",
            )
        await kept.work.stopped()
        return PlainResponse(kept.answer())

    @routes.get("/{response_id}/input_items", **operation(InputItems, errors=KEPT, tag=TAG))
    async def input_items(
        request: Request,
        response_id: str,
        limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 20,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
    ) -> Response:
        """The items that a response answers, those of the conversation before it included. `order`: "desc" has the
        newest first; `after`: the id of the last one that is known already."""
        _check_query(request, "limit", "order", "after")
        kept = kept_here.get(response_id, caller_of(request).tenant)
        before = turns_up_to(kept.turn.previous)
        items = await surface.beside(_weight(before), lambda: [*conversation(before), *kept.turn.input()])
        return JsonResponse(_page(items, limit, order, after), headers=_ignored(request))

    return routes


async def _in_background(making: Making, body: ResponsesBody) -> Response:
    try:
        await making.begun()
    except BaseException:
        await making.aclose()
        raise
    work = Background(making, events=body.stream)
    if not body.stream:
        return PlainResponse(work.answer(), headers=body.headers)
    return EventStream(work.follow(), lambda error: encoded(fault(error)), headers=body.headers)


# --- reading ---


async def _asked(surface: Surface, store: Store, body: ResponsesBody, caller: Caller, suffix: str) -> Asked:
    """`suffix`: of its id and of its items'. Raises InvalidRequest, Unsupported, ModelNotFound or ResponseNotFound,
    naming the field."""
    surface.check_model(body.model)
    body.check()
    previous = _previous(store, body, caller)
    given, turn = await _read(surface, store, body, caller, previous, suffix)
    with named_as_here():
        prepared = await surface.frontend.chats.prepare(turn, body.params(), namespace=body.cache_namespace(caller))
    return Asked(f"resp_{suffix}", body, caller, given, previous, prepared)


def _previous(store: Store, body: InputFields, caller: Caller) -> Turn | None:
    wanted = body.previous_response_id
    return None if wanted is None else store.turn_behind(wanted, caller.tenant)


async def _read(
    surface: Surface, store: Store, body: InputFields, caller: Caller, previous: Turn | None, suffix: str
) -> Given:
    """The items of the request itself, and what is asked of the model."""
    before = turns_up_to(previous)
    named = await surface.beside(READING * _pieces(body), lambda: references(body))
    found = [store.turn_with(item_id, caller.tenant) for item_id in named]
    referred = list(dict.fromkeys(turn for turn in found if turn is not None))

    more: dict[str, Any] = {}
    if isinstance(body, ResponsesBody):
        more = {"variables": body.chat_template_kwargs, "jump": body.jump, "complete": body.complete is True}

    def work() -> Given:
        items = {item["id"]: item for turn in referred for item in (*turn.input(), *turn.output())}
        given = read_items(body, suffix, lambda item_id: items.pop(item_id, None))
        choice = choice_of(body)
        turn = ChatTurn(
            messages=messages_of([*conversation(before), *given], body.instructions),
            tools=tools_of(body),
            tool_choice=choice.choice,
            allowed_tools=choice.allowed,
            parallel_tool_calls=body.parallel_tool_calls,
            reasoning_effort=effort_of(body, body.effort(), surface.frontend.chats.reasoning, "reasoning.effort"),
            **more,
        )
        return given, turn

    size = READING * (_pieces(body) + len(body.tools)) + _weight([*before, *referred])
    return await surface.beside(size, work)


def _pieces(body: InputFields) -> int:
    return pieces(body.input) if isinstance(body.input, list) else 0


def _weight(turns: Sequence[Turn]) -> int:
    return sum(turn.size for turn in turns) // BYTES_OF_ITEMS


# --- answers ---


def _page(items: list[Item], limit: int, order: Literal["asc", "desc"], after: str | None) -> dict[str, Any]:
    if order == "desc":
        items = items[::-1]
    begin = 0
    if after is not None:
        begin = next((index + 1 for index, item in enumerate(items) if item["id"] == after), 0)
        if not begin:
            raise InvalidRequest(f"after={after!r} is not the id of one of these items.", param="after")
    shown = items[begin : begin + limit]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": begin + limit < len(items),
    }


def _check_query(request: Request, *known: str) -> None:
    """Raises InvalidRequest for what nothing here asks for."""
    for name in request.query_params:
        if name.removesuffix("[]") not in (*known, *WITHOUT_EFFECT):
            raise InvalidRequest(
                f"{reprlib.repr(name)} is not a parameter of this request.",
                hint=f"It takes {', '.join(known)}.",
                param=name,
            )


def _ignored(request: Request) -> dict[str, str]:
    named = [name for name in WITHOUT_EFFECT if request.query_params.keys() & {name, f"{name}[]"}]
    return {IGNORED_HEADER: ", ".join(named)} if named else {}
