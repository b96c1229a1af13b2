"""Runs a workload on a system: as programs of the language, or with the plain openai client.

A system is started once and measured many times; each measurement begins with an empty cache where the server can empty
it, and with texts that no earlier one had. Called by __main__.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import httpx

import palmette as pt
from benchmarks.paper.plain import FLAVOURS, PlainClient, Usage
from benchmarks.paper.workload import Item, Workload
from benchmarks.peers.base import Setup
from benchmarks.peers.llama_cpp import LlamaCppServer
from benchmarks.peers.ours import PalmetteServer
from benchmarks.peers.vllm_cpu import VllmCpuServer
from palmette.runtime.errors import PalmetteError

LLAMA_SLOT_TOKENS = 4096  # ReAct's prompts are the longest: 2,100 tokens
VLLM_OPTIONS = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')


@dataclass(frozen=True)
class Outcome:
    """One run of one workload. `outputs`: of each program that ended, in no order where some were given up.

    `ended` of `programs` did so within the limit; where some didn't, `seconds` is a lower bound.
    """

    seconds: float
    programs: int
    ended: int
    usage: Usage
    outputs: list[dict[str, Any]]

    @property
    def whole(self) -> bool:
        return self.ended == self.programs


class RunFailed(Exception):
    """A system failed a workload; the message has its words."""


class Running(Protocol):
    """A system that is ready."""

    name: str

    async def run(self, workload: Workload, items: Sequence[Item], limit: float | None) -> Outcome:
        """All programs at once. Raises RunFailed."""
        ...


class Programs:
    """Programs of the language on a backend."""

    def __init__(self, name: str, backend: Any, *, compiled: bool = False) -> None:
        self.name = name
        self._backend = backend
        self._compiled = compiled

    async def run(self, workload: Workload, items: Sequence[Item], limit: float | None) -> Outcome:
        await asyncio.to_thread(pt.flush_cache, self._backend)
        return await asyncio.to_thread(self._run, workload, items, limit)

    def _run(self, workload: Workload, items: Sequence[Item], limit: float | None) -> Outcome:
        program = workload.program.compile(or_interpret=True) if self._compiled else workload.program
        started = time.perf_counter()
        states = program.run_batch(items, backend=self._backend, deadline=limit)
        outputs: list[dict[str, Any]] = []
        ended: list[pt.ProgramState] = []
        for state in states:
            try:  # reading waits for forks, too
                outputs.append({name: state[name] for name in workload.outputs})
                ended.append(state)
            except PalmetteError as failure:
                if limit is None or time.perf_counter() - started < limit:
                    raise RunFailed(f"{self.name}: {failure}") from failure
        seconds = time.perf_counter() - started
        usage = Usage(cached_tokens=0)
        for state in ended:
            used = state.usage()
            usage.calls += used.calls
            usage.prompt_tokens += used.prompt_tokens
            usage.completion_tokens += used.completion_tokens
            usage.cached_tokens = (usage.cached_tokens or 0) + used.cached_tokens
        return Outcome(seconds, len(items), len(outputs), usage, outputs)


class PlainPrograms:
    """The same programs with the plain openai client. `reset_path`: a POST that empties the server's cache."""

    def __init__(self, name: str, url: str, flavour: str, reset_path: str | None = None) -> None:
        self.name = name
        self._url = url
        self._flavour = FLAVOURS[flavour]
        self._reset_path = reset_path

    async def run(self, workload: Workload, items: Sequence[Item], limit: float | None) -> Outcome:
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as http:
            if self._reset_path is not None:
                (await http.post(self._reset_path)).raise_for_status()
            model = (await http.get("/v1/models")).raise_for_status().json()["data"][0]["id"]
        client = PlainClient(self._url, self._flavour, model=model)
        try:
            return await self._run(workload, items, limit, client)
        finally:
            await client.close()

    async def _run(
        self, workload: Workload, items: Sequence[Item], limit: float | None, client: PlainClient
    ) -> Outcome:
        started = time.perf_counter()
        tasks = [asyncio.ensure_future(workload.plain(client, **item)) for item in items]
        done, open_ = await asyncio.wait(tasks, timeout=limit)
        seconds = time.perf_counter() - started
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)
        failures = [failure for task in done if (failure := task.exception()) is not None]
        if failures:
            raise RunFailed(f"{self.name}: {failures[0]!r}") from failures[0]
        outputs = [task.result() for task in tasks if task in done]
        return Outcome(seconds, len(items), len(outputs), client.usage, outputs)


Start = Callable[[Setup], AbstractAsyncContextManager[Running]]


@contextlib.asynccontextmanager
async def _palmette(setup: Setup, name: str = "palmette", *, compiled: bool = False) -> AsyncIterator[Running]:
    with PalmetteServer(name=name).serve(setup) as url:
        endpoint = await asyncio.to_thread(pt.RuntimeEndpoint, url)
        try:
            yield Programs(name, endpoint, compiled=compiled)
        finally:
            await asyncio.to_thread(endpoint.shutdown)


@contextlib.asynccontextmanager
async def _palmette_engine(setup: Setup) -> AsyncIterator[Running]:
    engine = await asyncio.to_thread(lambda: pt.Engine(model=str(setup.model), threads=setup.threads))
    try:
        yield Programs("palmette-engine", engine)
    finally:
        await asyncio.to_thread(engine.close)


@contextlib.asynccontextmanager
async def _palmette_plain(setup: Setup) -> AsyncIterator[Running]:
    with PalmetteServer(name="palmette-plain").serve(setup) as url:
        yield PlainPrograms("palmette-plain", url, "palmette", "/flush_cache")


@contextlib.asynccontextmanager
async def _vllm(setup: Setup) -> AsyncIterator[Running]:
    with VllmCpuServer().serve(setup, *VLLM_OPTIONS) as url:
        yield PlainPrograms("vllm", url, "vllm", "/reset_prefix_cache")


@contextlib.asynccontextmanager
async def _llama_cpp(setup: Setup) -> AsyncIterator[Running]:
    log = setup.logs / "llama-cpp.log"
    server = LlamaCppServer()
    with server.serve(setup.model, threads=setup.threads, log=log, slot_tokens=LLAMA_SLOT_TOKENS) as url:
        yield PlainPrograms("llama-cpp", url, "llama-cpp")


@dataclass(frozen=True)
class System:
    start: Start
    what: str
    versions: Callable[[], dict[str, str]]
    installed: Callable[[], bool]


SYSTEMS: dict[str, System] = {
    "palmette": System(
        _palmette, "programs on `palmette serve`", PalmetteServer().versions, PalmetteServer().installed
    ),
    "vllm": System(_vllm, "plain openai client on vLLM", VllmCpuServer().versions, VllmCpuServer().installed),
    "llama-cpp": System(
        _llama_cpp, "plain openai client on llama.cpp's server", LlamaCppServer().versions, LlamaCppServer().installed
    ),
    "palmette-engine": System(
        _palmette_engine, "programs on an engine in process", PalmetteServer().versions, PalmetteServer().installed
    ),
    "palmette-compiled": System(
        partial(_palmette, name="palmette-compiled", compiled=True), "compiled programs on `palmette serve`",
        PalmetteServer().versions, PalmetteServer().installed,
    ),
    "palmette-plain": System(
        _palmette_plain, "plain openai client on `palmette serve`", PalmetteServer().versions,
        PalmetteServer().installed,
    ),
}  # fmt: skip
