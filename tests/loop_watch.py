"""An event loop's callbacks, and the CPU time that each takes of the loop's own thread: what others on the machine do
doesn't count. For tests that hold the server to its rule that nothing long runs on the loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

SAMPLE_SECONDS = 0.0005


@dataclass(frozen=True)
class Long:
    """A callback that took `seconds`; `where`: what it was in for most of them, innermost first."""

    seconds: float
    name: str
    where: str


@dataclass
class LoopWatch:
    """`limit`: CPU seconds that a callback may take without being noted. Collections of garbage are counted apart:
    whose callback they fall into is chance."""

    limit: float = 0.001
    callbacks: int = 0
    long: list[Long] = field(default_factory=list)
    collections: list[float] = field(default_factory=list)
    _thread: int = 0
    _garbage: float = 0.0
    _samples: list[str] = field(default_factory=list)
    _begun: float = 0.0

    @contextlib.contextmanager
    def on(self, loop: asyncio.AbstractEventLoop, *, sampling: bool = False) -> Iterator[LoopWatch]:
        """Watches `loop`, which runs in another thread."""
        self._thread = self._ident_of(loop)
        over = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(over,), daemon=True)
        original: Callable[[Any], None] = asyncio.events.Handle._run

        def timed(handle: Any) -> None:
            if threading.get_ident() != self._thread:
                original(handle)
                return
            name = handle  # shown only where it matters: that takes time too
            shown = self._task_of(name)
            self._samples.clear()
            self._garbage = 0.0
            begun = self._begun = time.thread_time()
            original(handle)
            seconds = time.thread_time() - begun - self._garbage
            self.callbacks += 1
            if seconds > self.limit:
                where = max(set(self._samples), key=self._samples.count) if self._samples else "?"
                self.long.append(Long(seconds, shown, where))

        gc.callbacks.append(self._collected)
        asyncio.events.Handle._run = timed  # type: ignore[method-assign]
        if sampling:
            sampler.start()
        try:
            yield self
        finally:
            asyncio.events.Handle._run = original  # type: ignore[method-assign]
            gc.callbacks.remove(self._collected)
            over.set()

    def worst(self) -> dict[tuple[str, str], list[float]]:
        """Seconds of the long ones, by what they were."""
        found: dict[tuple[str, str], list[float]] = {}
        for each in self.long:
            found.setdefault((each.name, each.where), []).append(each.seconds)
        return found

    def _ident_of(self, loop: asyncio.AbstractEventLoop) -> int:
        async def ident() -> int:
            return threading.get_ident()

        return asyncio.run_coroutine_threadsafe(ident(), loop).result(10)

    @staticmethod
    def _task_of(handle: Any) -> str:
        owner = getattr(handle._callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            return str(getattr(owner.get_coro(), "__qualname__", owner))
        return str(getattr(handle._callback, "__qualname__", handle._callback))

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_begun = time.thread_time()
        else:
            taken = time.thread_time() - self._collection_begun
            self._garbage += taken
            if taken > self.limit:
                self.collections.append(taken)

    def _sample(self, over: threading.Event) -> None:
        while not over.wait(SAMPLE_SECONDS):
            frame = sys._current_frames().get(self._thread)
            stack = []
            while frame is not None and len(stack) < 12:
                code = frame.f_code
                if "asyncio" in code.co_filename and code.co_name in ("_run_once", "run_forever", "_run"):
                    break
                stack.append(f"{code.co_filename.rpartition('/')[2]}:{code.co_name}:{frame.f_lineno}")
                frame = frame.f_back
            if stack:
                self._samples.append(" < ".join(stack[:6]))
