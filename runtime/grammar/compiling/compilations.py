"""What is compiled of one sort of sources, cached by content: at once, or in threads whose callers never wait.

In threads a source is tried quickly first, in this process; what takes longer is compiled by a few other threads, in
child processes, so that it holds up neither the quick ones nor anybody's outputs, and can be ended. Knows no kinds;
made by compile.py, asked by the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from time import monotonic, thread_time
from typing import Generic, TypeVar

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.cache import Cache
from palmette.runtime.grammar.compiling.contained import Wanted, too_slow
from palmette.runtime.grammar.protocol import TooSlow
from palmette.runtime.messages.grammar import GrammarSource

T = TypeVar("T")

QUICK_SHARE = 0.2  # seconds of CPU time of quick tries a request, beyond which its sources aren't tried any more

Build = Callable[[GrammarSource], T]


class Share:
    """What a request may use of this process's time."""

    def __init__(self, seconds: float = QUICK_SHARE) -> None:
        self._left = seconds

    @property
    def left(self) -> bool:
        return self._left > 0

    def spend(self, seconds: float) -> None:
        self._left -= seconds


class Pending(Generic[T]):
    """A compilation under way. Asked for by the scheduler's loop, which never waits."""

    def __init__(self, kind: str, seconds: float) -> None:
        """`seconds`: how long it may take."""
        self.kind = kind
        self._limit = seconds
        self._future: Future[T] = Future()
        self._started: float | None = None
        self._ended: float | None = None
        self._waiting = 0

    @property
    def seconds(self) -> float:
        """That it was compiled; until now, where it still is. Waiting for a thread doesn't count: others' grammars must
        not fail this one."""
        if self._started is None:
            return 0.0
        return (self._ended or monotonic()) - self._started

    @property
    def ready(self) -> bool:
        """`result` returns, or raises, at once."""
        return self._future.done() or self._overdue

    @property
    def failed(self) -> bool:
        """`result` raises, now that it is ready."""
        return not self._future.done() or self._future.exception() is not None

    @property
    def wanted(self) -> bool:
        """Somebody waits for it, and may go on to."""
        return self._waiting > 0 and not self._overdue

    def join(self) -> None:
        """One more waits for it."""
        self._waiting += 1

    def leave(self) -> None:
        """One doesn't any more. Where none is left it is given up."""
        self._waiting -= 1

    def result(self) -> T:
        """What was compiled. Raises GrammarError for a bad source, or one that took too long. Waits for it."""
        left = None if self._started is None else max(0.0, self._limit - self.seconds)
        try:
            return self._future.result(left)
        except TimeoutError:
            raise too_slow(self.kind, self._limit) from None

    @property
    def _overdue(self) -> bool:
        return self.seconds > self._limit

    def run(self, work: Callable[[], T]) -> bool:
        """In a thread of the compiler. False where it must be done by those who may take longer."""
        if self._waiting <= 0:
            self._future.set_exception(
                GrammarError(f"Nobody waits for the {self.kind} any more.", hint="Ask again.", param=self.kind)
            )
            return True
        self.begin()
        try:
            done = work()
        except TooSlow:
            return False
        except BaseException as error:  # handed to whoever asks for the result
            self._ended = monotonic()
            self._future.set_exception(error)
        else:
            self._ended = monotonic()
            self._future.set_result(done)
        return True

    def pause(self) -> None:
        """Until the next thread takes it up, or a process that is started for it: it is as if it hadn't begun."""
        self._started = None

    def begin(self) -> None:
        self._started = monotonic()


class Threads:
    """Of a compiler: those that try quickly, and those that keep a child process busy each."""

    def __init__(self, count: int) -> None:
        self.quick = ThreadPoolExecutor(count, thread_name_prefix="grammar")
        self.slow = ThreadPoolExecutor(count, thread_name_prefix="grammar-slow")

    def close(self) -> None:
        """Drops what hasn't started; waits for what has, which the limits bound."""
        self.quick.shutdown(wait=True, cancel_futures=True)
        self.slow.shutdown(wait=True, cancel_futures=True)


class Compilations(Generic[T]):
    """`build` compiles in the caller's thread. `tried` does so within quick bounds, and raises TooSlow beyond them;
    `contained` in a child process, as long as it is wanted.

    Safe from several threads. Requests that ask for the same source while it compiles share the work.
    """

    def __init__(
        self,
        build: Build[T],
        threads: Threads,
        *,
        tried: Build[T],
        contained: Callable[[GrammarSource, Wanted], T],
        weigh: Callable[[T], int],
        seconds: float,
        cached: int,
        cached_bytes: int,
    ) -> None:
        self._build = build
        self._tried = tried
        self._contained = contained
        self._threads = threads
        self._seconds = seconds
        self._cache: Cache[T] = Cache(cached, cached_bytes, weigh)
        self._pending: dict[str, Pending[T]] = {}
        self._lock = Lock()

    def cached(self, source: GrammarSource) -> T | None:
        return self._cache.get(source.key)

    def compile(self, source: GrammarSource) -> T:
        """In the caller's thread, however long it takes within the limits. Raises GrammarError."""
        return self._kept(source, self._build)

    def submit(self, source: GrammarSource, share: Share | None = None) -> Pending[T]:
        """Starts compiling; returns at once. `share`: of the request that asks. Whoever stops waiting for it before it
        is ready tells it by `leave`."""
        key, share = source.key, share or Share()
        with self._lock:
            pending = self._pending.get(key)
            if pending is None or pending.ready or not pending.wanted:
                self._pending = {other: one for other, one in self._pending.items() if not one.ready}
                pending = self._pending[key] = Pending(source.kind, self._seconds)
                pending.join()
                self._threads.quick.submit(self._try, source, pending, share)
            else:
                pending.join()
            return pending

    def give_up(self) -> None:
        """Nobody waits for anything any more."""
        with self._lock:
            for pending in self._pending.values():
                while pending.wanted:
                    pending.leave()

    def _try(self, source: GrammarSource, pending: Pending[T], share: Share) -> None:
        begun = thread_time()
        done = share.left and pending.run(lambda: self._kept(source, self._tried))
        share.spend(thread_time() - begun)
        if not done:
            pending.pause()
            self._threads.slow.submit(pending.run, lambda: self._kept(source, lambda it: self._contained(it, pending)))

    def _kept(self, source: GrammarSource, build: Build[T]) -> T:
        key = source.key
        compiled = self._cache.get(key)
        if compiled is None:
            compiled = build(source)
            self._cache.put(key, compiled)
        return compiled
