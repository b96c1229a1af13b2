"""The seam between the language and whatever runs it: a backend opens branches; a branch is a program's state.

Verbs are coroutines and run in order within a branch; the language's core is the only caller. Every verb takes the
parts that were appended before it, so that nodes that need no Python in between travel in one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from palmette.runtime.messages.branches import ChoiceScores, Chunk, Part
from palmette.runtime.messages.sampling import SamplingParams


class BackendBranch(Protocol):
    """One branch. After an engine restart a verb raises BranchLost; the language reopens from its own history."""

    async def extend(self, parts: Sequence[Part]) -> str:
        """Append `parts`; returns the text they added, template text included."""
        ...

    def generate(
        self, parts: Sequence[Part], params: SamplingParams, *, return_text: bool = True
    ) -> AsyncIterator[Chunk]:
        """Append `parts`, then generate. The branch keeps the kept tokens. Closing the iterator aborts."""
        ...

    async def score(
        self, parts: Sequence[Part], choices: Sequence[str], *, unconditional: bool = False
    ) -> ChoiceScores:
        """Append `parts`, then score each choice as a continuation, in one batched call. Nothing else is appended."""
        ...

    async def fork(self, parts: Sequence[Part], count: int) -> list[BackendBranch]:
        """Append `parts`, encode what is pending, and return `count` branches that start from here."""
        ...

    async def truncate(self, position: int) -> None:
        """Keep the first `position` tokens."""
        ...

    async def close(self) -> None:
        """Release the branch; aborts a running verb. Idempotent."""
        ...


class Backend(Protocol):
    name: str

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running event loop that every verb must be awaited on."""
        ...

    async def open(self, *, namespace: str = "") -> BackendBranch: ...

    async def flush_cache(self) -> int:
        """Drop cached pages that nothing uses; returns how many."""
        ...

    async def close(self) -> None: ...
