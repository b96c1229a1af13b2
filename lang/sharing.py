"""What the programs of a batch begin with: seen as the first of them begin, computed once, pinned while the batch runs.

Watching costs a program nothing, and runs no code of it twice: a state tells what its first call takes with it. Used
by batches.py; changes no result.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass

from palmette.lang.arrival import Arrival
from palmette.lang.backends.base import Backend
from palmette.runtime.errors import PalmetteError
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.branches import Chunk, GenerateStep, Part, Text, Tokens
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.sampling import SamplingParams

WORTH_SHARING = 64  # characters
WATCHED = 3  # programs of a batch whose beginnings are compared
PIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Warmed:
    """What the first programs of a batch began with, which was computed once and kept in the cache for the others.

    `text` has the template's parts, too. Of its `tokens`, `computed_tokens` were computed for it; the others were
    cached by then.
    """

    text: str
    tokens: int
    computed_tokens: int

    def __str__(self) -> str:
        return f"{self.tokens} tokens shared, {self.computed_tokens} of them computed: {self.text[:60]!r}"


class SharedPrefix:
    """Of one batch of `programs`."""

    def __init__(self, backend: Backend, programs: int, namespace: str = "") -> None:
        self.report: Arrival[Warmed | None] = Arrival()
        self._backend = backend
        self._namespace = namespace
        self._missing = min(WATCHED, programs)
        self._seen: list[Sequence[plans.Piece | Tokens]] = []
        self._lock = threading.Lock()
        self._over = asyncio.Event()
        self._keeping: Future[None] | None = None  # held here, since event loops hold tasks weakly

    def saw(self, parts: Sequence[plans.Piece | Tokens]) -> None:
        """What the first call of a program takes with it. From any thread."""
        with self._lock:
            if self._missing == 0:
                return
            self._missing -= 1
            self._seen.append(parts)
            if self._missing:
                return
        shared = shared_parts(self._seen)
        if sum(len(part.text) for part in shared if isinstance(part, Text)) >= WORTH_SHARING:
            work = self._keep(shared)
            try:
                self._keeping = asyncio.run_coroutine_threadsafe(work, self._backend.loop)
                return
            except (RuntimeError, PalmetteError):  # the engine was closed
                work.close()
        self.report.set_result(None)

    def release(self) -> None:
        """The batch is over. From any thread."""
        if self._keeping is None:
            self.report.set_result(None)
        try:
            self._backend.loop.call_soon_threadsafe(self._over.set)
        except (RuntimeError, PalmetteError):  # the engine was closed, and with it the cache
            self.report.set_result(None)

    async def _keep(self, shared: tuple[Part, ...]) -> None:
        try:
            with contextlib.suppress(PalmetteError):  # nothing depends on it
                await self._kept(shared)
        finally:
            self.report.set_result(None)

    async def _kept(self, shared: tuple[Part, ...]) -> None:
        branch = await self._backend.open(namespace=self._namespace)
        step = GenerateStep(parts=shared, params=SamplingParams(max_tokens=0))
        text = ""
        async with aclosing(branch.run([step])) as results:
            async for _, result in results:
                assert isinstance(result, Chunk), "a generation gives chunks"
                text += result.appended
                if (used := result.usage) is not None:
                    self.report.set_result(Warmed(text, used.prompt_tokens, used.computed_tokens))
        while not self._over.is_set():
            await branch.hint(BranchHint(pin_seconds=PIN_SECONDS))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), PIN_SECONDS / 2)
        await branch.hint(BranchHint(pin_seconds=0.0))
        await branch.close()


def shared_parts(beginnings: Sequence[Sequence[plans.Piece | Tokens]]) -> tuple[Part, ...]:
    """The parts that all of them begin with; of a text that differs, what is alike."""
    shared: list[Part] = []
    for column in zip(*map(_joined, beginnings), strict=False):
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


def _joined(parts: Sequence[plans.Piece | Tokens]) -> list[plans.Piece | Tokens]:
    """Texts that follow each other as one."""
    joined: list[plans.Piece | Tokens] = []
    for part in parts:
        if isinstance(part, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined


def _alike(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    for at, letters in enumerate(zip(*texts, strict=False)):
        if len(set(letters)) > 1:
            return texts[0][:at]
    return min(texts, key=len)
