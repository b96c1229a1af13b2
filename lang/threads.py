"""Threads for program code that doesn't run in its caller's: bounded, and never a reason to wait for ever.

A program that waits holds its thread, so a bounded pool could be full of programs that wait for one that has no thread
yet. Whoever waits for a program says so (`Job.hurry`), and that one gets a thread of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

PROGRAM_THREADS = 64


class Job:
    """Program code that waits for a thread, or has one."""

    def __init__(self, threads: ProgramThreads, work: Callable[[], None]) -> None:
        self._threads = threads
        self.work = work

    def hurry(self) -> None:
        """Somebody waits for it: where it has no thread yet, it gets an extra one."""
        self._threads.hurry(self)


class ProgramThreads:
    """At most `limit` threads, started as they are needed and ended when idle; and one for each hurried job."""

    def __init__(self, limit: int = PROGRAM_THREADS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Job, None] = OrderedDict()
        self._running = 0

    def submit(self, work: Callable[[], None]) -> Job:
        """Run `work`, which must not raise, as soon as a thread is free."""
        job = Job(self, work)
        with self._lock:
            self._waiting[job] = None
            start = self._running < self._limit
            self._running += start
        if start:
            threading.Thread(target=self._run, name="palmette-program", daemon=True).start()
        return job

    def hurry(self, job: Job) -> None:
        with self._lock:
            if job not in self._waiting:
                return
            del self._waiting[job]
        threading.Thread(target=job.work, name="palmette-program-extra", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                job, _ = self._waiting.popitem(last=False)
            job.work()


program_threads = ProgramThreads()
"""Those of this process."""
