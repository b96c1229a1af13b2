"""What all programs of a batch begin with: found by tracing some of them, computed once, pinned while the batch runs.

Used by program.run_batch for compiled programs; changes no result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import aclosing

from palmette.lang.backends.base import Backend
from palmette.runtime.errors import PalmetteError
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.branches import GenerateStep, Part, Text
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.sampling import SamplingParams

WORTH_SHARING = 64  # characters
PIN_SECONDS = 30.0


class SharedPrefix:
    """What every program of a batch begins with, found by tracing some of them: computed once, and pinned in the cache
    until the batch is over."""

    def __init__(self, backend: Backend, traced: Sequence[plans.Plan], namespace: str = "") -> None:
        self.parts = shared_parts(traced)
        self._backend = backend
        self._namespace = namespace
        self._over = asyncio.Event()
        size = sum(len(part.text) for part in self.parts if isinstance(part, Text))
        if size >= WORTH_SHARING:
            asyncio.run_coroutine_threadsafe(self._keep(), backend.loop)

    def release(self) -> None:
        """The batch is over. From any thread."""
        with contextlib.suppress(RuntimeError):  # the engine was closed, and with it the cache
            self._backend.loop.call_soon_threadsafe(self._over.set)

    async def _keep(self) -> None:
        with contextlib.suppress(PalmetteError):  # nothing depends on it
            branch = await self._backend.open(namespace=self._namespace)
            step = GenerateStep(parts=self.parts, params=SamplingParams(max_tokens=0))
            async with aclosing(branch.run([step])) as results:
                async for _ in results:
                    pass
            while not self._over.is_set():
                await branch.hint(BranchHint(pin_seconds=PIN_SECONDS))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), PIN_SECONDS / 2)
            await branch.hint(BranchHint(pin_seconds=0.0))
            await branch.close()


def shared_parts(traced: Sequence[plans.Plan]) -> tuple[Part, ...]:
    """The parts that all of the plans' first operations begin with; of a text that differs, what is alike."""
    shared: list[Part] = []
    for column in zip(*(plan.tracks[0][0].parts for plan in traced), strict=False):
        first = column[0]
        if isinstance(first, plans.Insert):
            break
        if all(part == first for part in column):
            shared.append(first)
            continue
        texts = [part.text for part in column if isinstance(part, Text)]
        if len(texts) == len(column) and (alike := _alike(texts)):
            shared.append(Text(alike))
        break
    return tuple(shared)


def _alike(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    for at, letters in enumerate(zip(*texts, strict=False)):
        if len(set(letters)) > 1:
            return texts[0][:at]
    return min(texts, key=len)
