"""Drives `palmette.Engine` in this process: no HTTP, the scheduler in its thread, the front on its loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks.drivers.protocol import Arrival, Completion, DriverError
from palmette.runtime.engine import Engine
from palmette.runtime.errors import PalmetteError
from palmette.runtime.messages.grammar import Jump, constraint
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import count, unpack


class EngineDriver:
    """Owns `engine` and closes it. Times are taken on the engine's loop, where a program would take them."""

    def __init__(self, name: str, engine: Engine, *, jump: Jump = "bytes") -> None:
        """`jump`: of the calls with a schema."""
        self.name = name
        self._engine = engine
        self._jump: Jump = jump

    async def complete(self, prompt: Sequence[int], max_tokens: int, schema: str | None = None) -> Completion:
        work = asyncio.run_coroutine_threadsafe(self._complete(tuple(prompt), max_tokens, schema), self._engine.loop)
        return await asyncio.wrap_future(work)

    async def _complete(self, prompt: tuple[int, ...], max_tokens: int, schema: str | None) -> Completion:
        wanted = constraint(json_schema=schema, jump=self._jump)
        params = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=schema is None, constraint=wanted)
        text = ""
        tokens: list[int] = []
        arrivals: list[Arrival] = []
        cached = 0
        started = time.perf_counter()
        try:
            async for chunk in self._engine.frontend.submit(prompt, params):
                text += chunk.text
                if chunk.tokens:
                    tokens += unpack(chunk.tokens)
                    arrivals.append(Arrival(time.perf_counter(), count(chunk.tokens)))
                if chunk.usage is not None:
                    cached = chunk.usage.cached_tokens
        except PalmetteError as error:
            raise DriverError(f"{self.name}: {error}") from error
        if schema is None and len(tokens) != max_tokens:
            raise DriverError(f"{self.name} made {len(tokens)} tokens where {max_tokens} were asked for.")
        return Completion(prompt, tuple(tokens), started, time.perf_counter(), tuple(arrivals), cached, text=text)

    async def reset(self) -> None:
        flush = asyncio.run_coroutine_threadsafe(self._engine.frontend.flush_cache(), self._engine.loop)
        await asyncio.wrap_future(flush)

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.close)
