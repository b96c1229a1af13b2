"""Compiled programs over HTTP: a whole program in one request, whose answer is the stream of its events.

Where the program asks the client for something (a tool's result), the client answers beside the stream, by the run's
id. Knows the wire form; frontend/programs/ runs the plan.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import caller_of
from palmette.runtime.api.bodies import read_message
from palmette.runtime.api.document import READING, operation
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.native.answers import EmptyAnswer
from palmette.runtime.api.request_ids import own_id
from palmette.runtime.api.streams import DONE, EventStream
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import BranchLost, PalmetteError
from palmette.runtime.frontend.programs.run import GraphRun
from palmette.runtime.messages.programs import CallResult, ProgramEvent, RunProgram
from palmette.runtime.messages.requests import Scheduling


def router(surface: Surface) -> APIRouter:
    routes = APIRouter(prefix="/v1/programs")
    running: dict[str, tuple[str, GraphRun]] = {}

    @routes.post("", **operation(takes=RunProgram, streams=ProgramEvent, errors=(*READING, 429, 503), tag="programs"))
    async def run(request: Request) -> Response:
        """Run a program's plan. Always a stream of events; the first says the run's id."""
        body = await read_message(request, RunProgram)
        caller = caller_of(request)
        body = msgspec.structs.replace(body, namespace=caller.namespace(body.namespace))
        program = surface.frontend.run_program(body, Scheduling(tenant=caller.tenant or ""))
        events = _events(own_id(request, "program-"), program, running, caller.tenant or "")
        return EventStream(events, _failure)

    @routes.post(
        "/{program_id}/results", **operation(EmptyAnswer, takes=CallResult, errors=(*READING, 410), tag="programs")
    )
    async def result(program_id: str, request: Request) -> Response:
        """What the client computed for a Call of the program."""
        body = await read_message(request, CallResult)
        found = running.get(program_id)
        if found is None or found[0] != (caller_of(request).tenant or ""):
            raise BranchLost(f"The program {program_id!r} doesn't run here.", hint="It may have ended; run it again.")
        await found[1].answer(body)
        return JsonResponse({})

    return routes


async def _events(
    program_id: str, program: GraphRun, running: dict[str, tuple[str, GraphRun]], tenant: str
) -> AsyncIterator[bytes]:
    """The run's events; it can be answered while they come."""
    running[program_id] = (tenant, program)
    events = program.events()
    try:
        yield _message(ProgramEvent(program=program_id))
        async for event in events:
            yield b"".join(map(_message, (event, *program.ready())))
    finally:
        del running[program_id]
        await events.aclose()
    yield DONE


def _failure(error: PalmetteError) -> bytes:
    return _message(ProgramEvent(error=error.info(), over=True))


def _message(event: ProgramEvent) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
