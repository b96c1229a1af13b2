"""Programs on a Palmette server: the branch verbs over `/v1/branches`.

Knows the wire form of the verbs, nothing of programs. A server that can't be reached is EngineDied: the language then
opens the branch again from its history, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec

from palmette.lang.backends.base import BackendBranch
from palmette.lang.loop import language_loop, run_on
from palmette.runtime.errors import EngineDied, ErrorInfo, InternalError, InvalidRequest, from_info
from palmette.runtime.messages.branches import BeginRole, ChoiceScores, Chunk, EndRole, Part, Text, Tokens
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack, unpack

CONNECTIONS = 1024
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0


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
        self._client: httpx.AsyncClient | None = None
        self._closed = False
        self._running: set[asyncio.Future[None]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return language_loop()

    async def open(self, *, namespace: str = "") -> BackendBranch:
        return HttpBranch(self, (await self.post("/v1/branches", {"namespace": namespace}))["id"])

    async def flush_cache(self) -> int:
        return int((await self.post("/flush_cache", {}))["flushed_pages"])

    async def close(self) -> None:
        """Close the connections, for good; verbs that run get a moment to end."""
        self._closed = True
        if self._running:
            await asyncio.wait(set(self._running), timeout=CLOSE_SECONDS)
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[httpx.AsyncClient]:
        """The client, for the time of one verb. A server that can't be reached is EngineDied."""
        if self._closed:
            raise EngineDied(f"The connection to {self.url} was shut down.", hint="Make a new RuntimeEndpoint.")
        if self._client is None:  # made on the loop that uses it
            self._client = httpx.AsyncClient(
                base_url=self.url,
                headers=self._headers,
                verify=self._verify,
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=64),
            )
        running: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running.add(running)
        try:
            yield self._client
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        finally:
            self._running.discard(running)
            running.set_result(None)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.connection() as client:
            return _answer(await client.post(path, content=_encoded(body), headers=_JSON))

    def unreachable(self, error: httpx.TransportError) -> EngineDied:
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
        return _answer(response)


class RuntimeEndpoint(HttpBackend):
    """A server as programs name it. Asks it for its model at once, so that a wrong URL or key fails here."""

    def __init__(self, base_url: str, api_key: str | None = None, verify: bool | str = True) -> None:
        super().__init__(base_url, api_key=api_key, verify=verify)
        self.model_info: dict[str, Any] = self.get("/v1/models")["data"][0]

    def get_model_name(self) -> str:
        return str(self.model_info["id"])

    def shutdown(self) -> None:
        """Close the connections, from any thread. The server goes on."""
        run_on(self.loop, self.close())


class HttpBranch:
    """One branch of a server, by its id."""

    def __init__(self, backend: HttpBackend, branch_id: str) -> None:
        self._backend = backend
        self._path = f"/v1/branches/{branch_id}"
        self._closed = False

    async def extend(self, parts: Sequence[Part]) -> str:
        answer = await self._backend.post(f"{self._path}/extend", {"parts": _parts(parts)})
        return str(answer["appended"])

    async def generate(
        self, parts: Sequence[Part], params: SamplingParams, *, return_text: bool = True
    ) -> AsyncIterator[Chunk]:
        body = {"parts": _parts(parts), "params": params, "return_text": return_text}
        url = f"{self._path}/generate"
        async with (
            self._backend.connection() as client,
            client.stream("POST", url, content=_encoded(body), headers=_JSON) as response,
        ):
            if not response.is_success:
                await response.aread()
                _answer(response)
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    return
                if line.startswith("data: "):
                    yield _chunk(msgspec.json.decode(line[len("data: ") :]))
        raise EngineDied(f"The server at {self._backend.url} ended a stream early.", hint="Is it still running?")

    async def score(
        self, parts: Sequence[Part], choices: Sequence[str], *, unconditional: bool = False
    ) -> ChoiceScores:
        body = {"parts": _parts(parts), "choices": list(choices), "unconditional": unconditional}
        return msgspec.convert(await self._backend.post(f"{self._path}/score", body), ChoiceScores)

    async def fork(self, parts: Sequence[Part], count: int) -> list[BackendBranch]:
        answer = await self._backend.post(f"{self._path}/fork", {"parts": _parts(parts), "count": count})
        return [HttpBranch(self._backend, branch_id) for branch_id in answer["ids"]]

    async def truncate(self, position: int) -> None:
        await self._backend.post(f"{self._path}/truncate", {"position": position})

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        async with self._backend.connection() as client:
            response = await client.delete(self._path)
        if response.status_code not in (404, 410):  # gone already
            _answer(response)


_JSON = {"content-type": "application/json"}


def _encoded(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)


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


def _chunk(data: dict[str, Any]) -> Chunk:
    """A chunk from its event; token ids come as a list. An error event is raised."""
    error = data.get("error")
    if error is not None:
        raise from_info(msgspec.convert(error, ErrorInfo))
    data["tokens"] = pack(data.get("tokens", ()))
    return msgspec.convert(data, Chunk)


def _answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON of a success; the server's error, as one of ours, of anything else."""
    try:
        data = response.json() if response.content else {}
    except ValueError:
        data = {}
    if response.is_success:
        return dict(data)
    error = data.get("error") if isinstance(data, dict) else None
    if not isinstance(error, dict) or "message" not in error:
        raise InternalError(
            f"{response.request.method} {response.request.url} was answered with status {response.status_code} "
            f"and {response.text[:200]!r}.",
            hint="Is this a Palmette server?",
        )
    kind = str(error.get("code") or error.get("type") or "")
    raise from_info(ErrorInfo(kind, str(error["message"]), str(error.get("hint") or ""), error.get("param")))
