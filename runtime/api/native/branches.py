"""Branches over HTTP: the verbs of lang's backend, for programs that run in another process.

A branch that nobody uses for a while is closed (memory is not given away for ever); what is unknown answers
BranchLost, and the language reopens it from its history.
"""

from __future__ import annotations

import reprlib
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import caller_of
from palmette.runtime.api.bodies import read, read_message
from palmette.runtime.api.document import READING, operation
from palmette.runtime.api.errors import event_error
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.limits import BRANCH_IDLE_SECONDS, MOST_BRANCHES
from palmette.runtime.api.native.answers import (
    AppendedAnswer,
    BranchChunk,
    BranchScores,
    ClosedAnswer,
    ClosedManyAnswer,
    EmptyAnswer,
    ForkAnswer,
    OpenBranchAnswer,
)
from palmette.runtime.api.native.schemas import (
    BranchForkBody,
    BranchGenerateBody,
    BranchScoreBody,
    CloseBranchesBody,
    OpenBranchBody,
    PartsBody,
    SamplingObject,
    TruncateBody,
)
from palmette.runtime.api.streams import DONE, EventStream, event, unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import BranchLost, InvalidRequest, Overloaded
from palmette.runtime.frontend import Branch, Frontend
from palmette.runtime.messages.branches import (
    BeginRole,
    Chunk,
    EndRole,
    GenerateStep,
    Part,
    RunBranch,
    Step,
    StepReply,
    Text,
    Tokens,
)
from palmette.runtime.messages.requests import Scheduling
from palmette.runtime.messages.tokens import TOKEN_BYTES, pack, unpack

BRANCH = (400, 401, 408, 410, 429, 503)  # how a verb may fail


class BranchTable:
    """The open branches by owner and id, the least recently used first. Idle ones are closed after `idle_seconds`.

    `owner`: the tenant who opened it; for others it isn't there.
    """

    def __init__(self, *, idle_seconds: float = BRANCH_IDLE_SECONDS, limit: int = MOST_BRANCHES) -> None:
        self._idle_seconds = idle_seconds
        self._limit = limit
        self._branches: OrderedDict[tuple[str, str], tuple[Branch, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._branches)

    async def add(self, branch: Branch, owner: str = "") -> str:
        """Keep `branch`; returns its id. At the limit the longest idle one makes room. Raises Overloaded."""
        return (await self.add_all([branch], owner))[0]

    async def add_all(self, branches: Sequence[Branch], owner: str = "") -> list[str]:
        """Keep `branches`, all of them or none; returns their ids. Raises Overloaded."""
        await self.expire()
        while len(self._branches) + len(branches) > self._limit:
            if not await self._close_first_idle(0.0):
                raise Overloaded(
                    f"{len(self._branches)} branches are open and at work; at most {self._limit} can be.",
                    hint="Close some, or try again soon.",
                )
        ids = [f"branch-{uuid.uuid4().hex}" for _ in branches]
        self._branches.update(
            ((owner, branch_id), (each, time.monotonic())) for branch_id, each in zip(ids, branches, strict=True)
        )
        return ids

    def get(self, branch_id: str, owner: str = "") -> Branch:
        """The branch, marked as used. Raises BranchLost."""
        found = self._branches.pop((owner, branch_id), None)
        if found is None:
            raise BranchLost(
                f"Branch {branch_id!r} is not known here: it was closed, it expired, or the server restarted.",
                hint="Open a new one and append its history.",
            )
        self._branches[owner, branch_id] = (found[0], time.monotonic())
        return found[0]

    async def remove(self, branch_id: str, owner: str = "") -> bool:
        found = self._branches.pop((owner, branch_id), None)
        if found is not None:
            await found[0].close()
        return found is not None

    async def expire(self) -> None:
        """Close every branch that has been idle for too long."""
        while await self._close_first_idle(self._idle_seconds):
            pass

    async def _close_first_idle(self, seconds: float) -> bool:
        latest = time.monotonic() - seconds
        for (owner, branch_id), (branch, used) in self._branches.items():
            if used > latest:
                return False
            if not branch.busy:
                return await self.remove(branch_id, owner)
        return False


def router(surface: Surface, table: BranchTable) -> APIRouter:
    routes = APIRouter(prefix="/v1/branches")
    frontend = surface.frontend

    def mine(branch_id: str, request: Request) -> Branch:
        return table.get(branch_id, caller_of(request).tenant)

    @routes.post("", **operation(OpenBranchAnswer, takes=OpenBranchBody, errors=(*READING, 429), tag="branches"))
    async def open_branch(request: Request) -> Response:
        """A new branch: the state of a program, whose verbs follow."""
        body = await read(request, OpenBranchBody)
        caller = caller_of(request)
        branch = await frontend.open_branch(body.cache_namespace(caller), body.scheduling(caller))
        return JsonResponse({"id": await table.add(branch, caller.tenant)})

    @routes.post("/run", **operation(takes=RunBranch, streams=StepReply, errors=BRANCH, tag="branches"))
    async def run(request: Request) -> Response:
        """Steps on a branch, in one message: a new branch, or an open one by its id."""
        body = await read_message(request, RunBranch)
        caller = caller_of(request)
        for ended_id in body.ended:
            await table.remove(ended_id, caller.tenant)
        _check_steps(body.steps, frontend)
        if body.hint is not None:
            body.hint.check()
        branch_id = body.branch
        if branch_id is not None:
            branch = table.get(branch_id, caller.tenant)
        else:
            scheduling = Scheduling(tenant=caller.tenant or "")
            branch = await frontend.open_branch(caller.namespace(body.namespace), scheduling)
            if not body.close:
                branch_id = await table.add(branch, caller.tenant)
        opened = branch_id if body.branch is None else None
        ended = _ended(table, branch, branch_id, caller.tenant) if body.close else None
        return EventStream(_replies(branch, body, opened, ended), lambda error: _message(StepReply(error=error.info())))

    @routes.post("/close", **operation(ClosedManyAnswer, takes=CloseBranchesBody, tag="branches"))
    async def close_all(request: Request) -> Response:
        """End several."""
        body = await read(request, CloseBranchesBody)
        owner = caller_of(request).tenant
        return JsonResponse({"closed": sum([await table.remove(branch_id, owner) for branch_id in body.ids])})

    @routes.post("/{branch_id}/extend", **operation(AppendedAnswer, takes=PartsBody, errors=BRANCH, tag="branches"))
    async def extend(branch_id: str, request: Request) -> Response:
        """Append text, token ids or turns."""
        body = await read(request, PartsBody)
        return JsonResponse({"appended": await mine(branch_id, request).extend(parts_of(body.parts, frontend))})

    @routes.post(
        "/{branch_id}/generate",
        **operation(takes=BranchGenerateBody, streams=BranchChunk, errors=BRANCH, tag="branches"),
    )
    async def generate(branch_id: str, request: Request) -> Response:
        """Append, then generate; the output is appended too. Always a stream."""
        body = await read(request, BranchGenerateBody)
        fields = body.nested(body.params, SamplingObject, "params")
        params = fields.sampling(max_tokens=fields.limit(), logprobs=fields.logprobs, top_logprobs=fields.top_logprobs)
        params.check(frontend.vocabulary.size)
        parts = parts_of(body.parts, frontend)
        chunks = mine(branch_id, request).generate(parts, params, return_text=body.return_text)
        return EventStream(_events(chunks), lambda error: event({"error": event_error(error.info())}))

    @routes.post("/{branch_id}/score", **operation(BranchScores, takes=BranchScoreBody, errors=BRANCH, tag="branches"))
    async def score(branch_id: str, request: Request) -> Response:
        """Append, then the log-probabilities of each choice."""
        body = await read(request, BranchScoreBody)
        work = mine(branch_id, request).score(
            parts_of(body.parts, frontend), body.choices, unconditional=body.unconditional
        )
        scores = await unless_gone(request, work)
        return Response(msgspec.json.encode(scores), media_type="application/json")

    @routes.post("/{branch_id}/fork", **operation(ForkAnswer, takes=BranchForkBody, errors=BRANCH, tag="branches"))
    async def fork(branch_id: str, request: Request) -> Response:
        """Append, then as many new branches that start from here."""
        body = await read(request, BranchForkBody)
        branch = mine(branch_id, request)
        forks, appended = await branch.fork_with_text(parts_of(body.parts, frontend), body.count)
        return JsonResponse({"ids": await table.add_all(forks, caller_of(request).tenant), "appended": appended})

    @routes.post("/{branch_id}/truncate", **operation(EmptyAnswer, takes=TruncateBody, errors=BRANCH, tag="branches"))
    async def truncate(branch_id: str, request: Request) -> Response:
        """Keep the first tokens only."""
        body = await read(request, TruncateBody)
        await mine(branch_id, request).truncate(body.position)
        return JsonResponse({})

    @routes.delete("/{branch_id}", **operation(ClosedAnswer, errors=(401,), tag="branches"))
    async def close(branch_id: str, request: Request) -> Response:
        """End a branch; what runs on it is aborted."""
        return JsonResponse({"closed": await table.remove(branch_id, caller_of(request).tenant)})

    return routes


def parts_of(given: Sequence[dict[str, Any]], frontend: Frontend) -> list[Part]:
    """The JSON forms of parts: {"type": "Text", "text": …} and so on; Tokens hold a list of ids."""
    return [_part(part, f"parts.{index}", frontend) for index, part in enumerate(given)]


def _part(given: dict[str, Any], path: str, frontend: Frontend) -> Part:
    match given:
        case {"type": "Text", "text": str(text)} if len(given) == 2:
            return Text(text)
        case {"type": "Tokens", "tokens": list(tokens)} if len(given) == 2:
            frontend.check_tokens(tokens)
            return Tokens(pack(tokens))
        case {"type": "BeginRole", "role": str(role)} if len(given) == 2:
            return BeginRole(role)
        case {"type": "EndRole", "role": str(role)} if len(given) == 2:
            return EndRole(role)
    raise InvalidRequest(
        f"{path}: {reprlib.repr(given)} is not a part.",
        hint='Parts are {"type": "Text", "text"}, {"type": "Tokens", "tokens"}, {"type": "BeginRole", "role"} and'
        ' {"type": "EndRole", "role"}.',
        param=path,
    )


def chunk_json(chunk: Chunk) -> dict[str, Any]:
    """A chunk with its token ids as a list; bytes in the finish as base64."""
    data: dict[str, Any] = msgspec.to_builtins(chunk)
    data["tokens"] = unpack(chunk.tokens)
    return data


def _check_steps(steps: Sequence[Step], frontend: Frontend) -> None:
    """Raises InvalidRequest for sampling parameters outside their limits and ids that are no tokens."""
    for step in steps:
        for part in step.parts:
            if isinstance(part, Tokens):
                if len(part.tokens) % TOKEN_BYTES:
                    raise InvalidRequest("Packed tokens are 4 bytes each.", param="steps")
                frontend.check_tokens(unpack(part.tokens))
        if isinstance(step, GenerateStep):
            step.params.check(frontend.vocabulary.size)


async def _replies(
    branch: Branch, body: RunBranch, opened: str | None, ended: Callable[[], Awaitable[None]] | None
) -> AsyncIterator[bytes]:
    """What the steps give, as events; `ended` is called behind them, however they end."""
    results = branch.run(body.steps)
    try:
        if opened is not None:
            yield _message(StepReply(branch=opened))
        async for step, result in results:
            if isinstance(result, Chunk):
                yield _message(StepReply(step=step, chunk=result))
            else:
                yield _message(StepReply(step=step, scores=result))
        if body.hint is not None:
            await branch.hint(body.hint)
    finally:
        await results.aclose()
        if ended is not None:
            await ended()
    yield DONE


def _ended(table: BranchTable, branch: Branch, branch_id: str | None, owner: str) -> Callable[[], Awaitable[None]]:
    """What closes the branch behind its last step, whether the table has it or not."""

    async def close() -> None:
        if branch_id is None:
            await branch.close()
        else:
            await table.remove(branch_id, owner)

    return close


def _message(reply: StepReply) -> bytes:
    return b"data: " + msgspec.json.encode(reply) + b"\n\n"


async def _events(chunks: AsyncIterator[Chunk]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield event(chunk_json(chunk))
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    yield DONE
