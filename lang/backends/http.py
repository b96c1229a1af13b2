"""Programs on a Palmette server: the branch verbs over `/v1/branches`.

Knows the wire form of the verbs, nothing of programs. A server that can't be reached is EngineDied: the language then
opens the branch again from its history, once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx
import msgspec

from palmette.lang.backends.base import BackendBranch, ProgramRun, Result, ToolChat
from palmette.lang.backends.chat_json import PostedChat
from palmette.lang.backends.http_programs import HttpProgramRun
from palmette.lang.backends.wire import CONNECT_SECONDS, Events, Exchange, Server
from palmette.lang.loop import begin, language_loop, run_on
from palmette.runtime.errors import EngineDied, ErrorInfo, InternalError, InvalidRequest, from_info
from palmette.runtime.messages.branches import (
    BeginRole,
    EndRole,
    Part,
    RunBranch,
    Step,
    StepReply,
    Text,
    Tokens,
)
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.programs import RunProgram
from palmette.runtime.messages.tokens import unpack
from palmette.runtime.messages.tool_chats import AskTurn

RUN = "/v1/branches/run"
CLOSE_SECONDS = 2.0
GATHER_SECONDS = 0.5  # how long a branch that has ended waits for another message to be closed with


class HttpBackend:
    """A server at `url` (http://host:port). Verbs run on the language's loop."""

    name = "http"

    def __init__(self, url: str, *, api_key: str | None = None, verify: bool | str = True) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise InvalidRequest(
                f"{url!r} is not the URL of a server.",
                hint="Write it as http://localhost:30000.",
                param="url",
            )
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._verify = verify
        self._server: Server | None = None
        self._closed = False
        self._ended: deque[str] = deque()
        self._closing: asyncio.Task[None] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return language_loop()

    async def open(self, *, namespace: str = "") -> BackendBranch:
        """A branch that the server makes with its first verb, so that opening costs no message."""
        return HttpBranch(self, namespace)

    async def run_program(self, request: RunProgram) -> ProgramRun:
        """A compiled program, in one request."""
        return HttpProgramRun(self, request)

    def check(self, path: str, status: int, body: bytes) -> dict[str, Any]:
        """The JSON of an answer. Raises the server's error."""
        return _answered("POST", self.url + path, status, body)

    async def flush_cache(self) -> int:
        return int((await self.post("/flush_cache", {}))["flushed_pages"])

    def open_tool_chat(self, *, namespace: str = "", state: str = "") -> ToolChat:
        """A conversation with tools, in the model's own format of calls."""

        async def post(turn: AskTurn, body: dict[str, Any]) -> dict[str, Any]:
            options = msgspec.to_builtins(turn.params)  # those that aren't defaults; the server refuses what it has not
            options |= {"priority": turn.priority} if turn.priority is not None else {}
            options |= {"deadline": turn.timeout} if turn.timeout is not None else {}
            options |= {"cache_salt": namespace} if namespace else {}
            for tool in body["tools"]:
                tool["function"]["strict"] = True  # as in process: calls are held to their schemas, and closed
            return await self.post("/v1/chat/completions", {"model": "default", "complete": True, **options, **body})

        return PostedChat(post)

    def close_soon(self, branch_id: str) -> None:
        """Close a branch with the next message to the server, or with one for all that have ended by then. From any
        thread."""
        self._ended.append(branch_id)
        if self._closing is None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the connections with it
                self.loop.call_soon_threadsafe(self._begin_closing)

    def take_ended(self) -> tuple[str, ...]:
        """Branches that the server should close; whoever takes them tells it."""
        ended: list[str] = []
        while self._ended:
            ended.append(self._ended.popleft())
        return tuple(ended)

    def _begin_closing(self) -> None:
        if self._closing is None:
            self._closing = begin(self.loop, self._close_branches(GATHER_SECONDS))

    async def _close_branches(self, delay: float = 0.0) -> None:
        await asyncio.sleep(delay)
        self._closing = None
        if ids := self.take_ended():
            with contextlib.suppress(EngineDied):  # then they are gone
                await self.post("/v1/branches/close", {"ids": ids})

    async def close(self) -> None:
        """Close the connections, for good; verbs that run get a moment to end."""
        await self._close_branches()
        self._closed = True
        if self._server is not None:
            await self._server.drained(CLOSE_SECONDS)
        if self._closing is not None:
            self._closing.cancel()
        if self._server is not None:
            self._server.close()

    def request(self, path: str, body: bytes) -> Exchange:
        """A POST. A server that can't be reached is EngineDied."""
        if self._closed:
            raise EngineDied(f"The connection to {self.url} was shut down.", hint="Make a new RuntimeEndpoint.")
        if self._server is None:  # made on the loop that uses it
            self._server = Server(self.url, self._headers, verify=self._verify, failed=self.unreachable)
        return self._server.request("POST", path, body)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.request(path, msgspec.json.encode(body)) as answer:
            return _answered("POST", self.url + path, answer.status, await answer.body())

    def unreachable(self, error: Exception) -> EngineDied:
        return EngineDied(
            f"The server at {self.url} did not answer ({type(error).__name__}: {error}).",
            hint="Is it running? `palmette serve` starts one.",
        )

    def get(self, path: str) -> Any:
        """A GET in the calling thread, for the questions asked at start."""
        try:
            response = httpx.get(self.url + path, headers=self._headers, verify=self._verify, timeout=CONNECT_SECONDS)
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        return _answered("GET", str(response.request.url), response.status_code, response.content)


class RuntimeEndpoint(HttpBackend):
    """A running `palmette serve` as a backend. Asks it for its model at once, so that a wrong URL or key fails here.

    `model_info`: what the server says of its model. `verify`: of TLS certificates, or a file of those to trust.
    """

    def __init__(self, base_url: str, api_key: str | None = None, verify: bool | str = True) -> None:
        super().__init__(base_url, api_key=api_key, verify=verify)
        self.model_info: dict[str, Any] = self.get("/v1/models")["data"][0]

    def get_model_name(self) -> str:
        """The model's name, as the server has it."""
        return str(self.model_info["id"])

    def shutdown(self) -> None:
        """Close the connections, from any thread. The server goes on."""
        run_on(self.loop, self.close())


class HttpBranch:
    """One branch of a server. It has an id once the server has said it, with the first verb's answer."""

    def __init__(self, backend: HttpBackend, namespace: str, branch_id: str | None = None) -> None:
        self._backend = backend
        self._namespace = namespace
        self._id = branch_id
        self._closed = False

    async def run(self, steps: Sequence[Step], *, last: bool = False) -> AsyncGenerator[tuple[int, Result], None]:
        finished = False
        body = RunBranch(
            steps=tuple(steps),
            branch=self._id,
            namespace=self._namespace,
            close=last,
            ended=self._backend.take_ended(),
        )
        if last:
            self._closed = True  # by the server, however the steps end
        async with self._backend.request(RUN, msgspec.json.encode(body)) as answer:
            if not answer.ok:
                _answered("POST", self._backend.url + RUN, answer.status, await answer.body())
            async for data in Events(answer):
                if data == b"[DONE]":
                    finished = True
                    continue
                reply = _decode_reply(data)
                if reply.error is not None:
                    raise from_info(reply.error)
                if reply.branch is not None:
                    self._id = reply.branch
                elif (result := reply.chunk or reply.scores) is not None:
                    yield reply.step, result
        if not finished:
            raise EngineDied(f"The server at {self._backend.url} ended a stream early.", hint="Is it still running?")

    async def fork(self, parts: Sequence[Part], count: int) -> list[BackendBranch]:
        if self._id is None:
            self._id = (await self._backend.post("/v1/branches", {"namespace": self._namespace}))["id"]
        answer = await self._backend.post(f"/v1/branches/{self._id}/fork", {"parts": _parts(parts), "count": count})
        return [HttpBranch(self._backend, self._namespace, branch_id) for branch_id in answer["ids"]]

    async def hint(self, hint: BranchHint) -> None:
        if self._id is None:
            return  # nothing is computed yet
        body = RunBranch(steps=(), branch=self._id, ended=self._backend.take_ended(), hint=hint)
        async with self._backend.request(RUN, msgspec.json.encode(body)) as answer:
            if not answer.ok:
                _answered("POST", self._backend.url + RUN, answer.status, await answer.body())
            await answer.body()

    async def close(self) -> None:
        self.drop()

    def drop(self) -> bool:
        if not self._closed and self._id is not None:
            self._backend.close_soon(self._id)
        self._closed = True
        return True


_decode_reply = msgspec.json.Decoder(StepReply).decode


def _parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [_part(part) for part in parts]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "Text", "text": text}
        case Tokens(tokens):
            return {"type": "Tokens", "tokens": unpack(tokens)}
        case BeginRole(role):
            return {"type": "BeginRole", "role": role}
        case EndRole(role):
            return {"type": "EndRole", "role": role}


def _answered(method: str, url: str, status: int, body: bytes) -> dict[str, Any]:
    """The JSON of a success; the server's error, as one of ours, of anything else."""
    try:
        data = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError:
        data = {}
    if 200 <= status < 300:
        return dict(data)
    error = data.get("error") if isinstance(data, dict) else None
    if not isinstance(error, dict) or "message" not in error:
        raise InternalError(
            f"{method} {url} was answered with status {status} and {body[:200]!r}.", hint="Is this a Palmette server?"
        )
    kind = str(error.get("code") or error.get("type") or "")
    raise from_info(ErrorInfo(kind, str(error["message"]), str(error.get("hint") or ""), error.get("param")))
