"""A limit on how long something may take, which says what to do about it. Used by compiled programs' runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from palmette.runtime.errors import TimedOut


@contextlib.asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[None]:
    """Raises TimedOut once so many seconds have passed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"{seconds:g} s have passed.", hint="Raise timeout, or ask for less (max_tokens, n).") from None
