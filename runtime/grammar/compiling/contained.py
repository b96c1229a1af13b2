"""Compiling in child processes: what takes long, or too much memory, is ended there, and costs nobody else.

A few children at most, started when the first large source comes, ended when they have had none for a while. Called by
the compiler's threads for sources that a quick try in this process didn't finish.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from threading import Lock, Timer
from time import monotonic
from typing import Protocol

import msgspec

import palmette
from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import Blueprint, unpack
from palmette.runtime.grammar.compiling.child import LENGTH_BYTES, READY, Job, Refusal, frame

MEMORY_BYTES = 1 << 30  # of a child, beyond an idle one's
IDLE_SECONDS = 60.0  # until a child that has nothing to do is ended
START_SECONDS = 20.0  # for a child to begin to read; not counted as the job's
_LOOK_SECONDS = 0.05  # until it is looked whether the job is still wanted

# The folder that holds the package, so that the child finds it wherever this process did.
_ROOT = str(Path(palmette.__file__).absolute().parents[1])
_PROGRAM = (
    "import os, sys; sys.path.insert(0, sys.argv[1]);"
    " os.putenv('OPENBLAS_NUM_THREADS', '1');"  # threads that nobody needs take address space
    " from palmette.runtime.grammar.compiling.child import main; sys.exit(main(int(sys.argv[2])))"
)


class Wanted(Protocol):
    """A job as those see it who wait for it."""

    @property
    def wanted(self) -> bool:
        """Anybody still waits, and may go on to."""
        ...

    def pause(self) -> None:
        """Its time doesn't run."""
        ...

    def begin(self) -> None:
        """Its time begins now."""
        ...


class _Lost(Exception):
    """The child has ended."""


class _Child:
    def __init__(self) -> None:
        """Raises OSError where no process can be started."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, _ROOT, str(MEMORY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in a terminal isn't its matter
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self.idle_since = monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    def started(self, wanted: Wanted) -> None:
        """Waits until it reads jobs. Raises as `ask` does, after START_SECONDS."""
        self._read(len(READY), monotonic() + START_SECONDS, wanted)

    def ask(self, job: Job, seconds: float, wanted: Wanted) -> bytes:
        """Its answer. Raises TimeoutError after `seconds`, or once it isn't wanted; _Lost where the child ends."""
        until = monotonic() + seconds
        self._write(frame(msgspec.msgpack.encode(job)), until, wanted)
        size = int.from_bytes(self._read(LENGTH_BYTES, until, wanted), "little")
        return self._read(size, until, wanted)

    def _write(self, data: bytes, until: float, wanted: Wanted) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._to, select.POLLOUT, until, wanted)
            try:
                view = view[os.write(self._to, view) :]
            except OSError:
                raise _Lost from None

    def _read(self, size: int, until: float, wanted: Wanted) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            self._wait(self._from, select.POLLIN, until, wanted)
            part = os.read(self._from, min(size - len(parts), 1 << 20))
            if not part:
                raise _Lost
            parts += part
        return bytes(parts)

    @staticmethod
    def _wait(file: int, what: int, until: float, wanted: Wanted) -> None:
        """Until the file is ready, or its other end is closed."""
        ready = select.poll()
        ready.register(file, what)
        while True:
            if not wanted.wanted or monotonic() > until:
                raise TimeoutError
            if ready.poll(_LOOK_SECONDS * 1000):
                return

    def end(self) -> int:
        """Its exit status, or the signal it ended by as a negative number."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return self._process.wait()


class Contained:
    """Children that compile, one job each at a time. Safe from several threads, each of which keeps one busy."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle: list[_Child] = []  # longest idle first
        self._idle_seconds = idle_seconds
        self._sweep: Timer | None = None  # runs while any is idle
        self._lock = Lock()
        self._closed = False

    def draw(self, job: Job, wanted: Wanted) -> Blueprint:
        """Raises GrammarError for a source that is refused, or ends the process that compiles it."""
        kind, seconds = job.source.kind, job.limits.seconds
        with self._lock:
            fresh = not self._idle
            child = None if fresh else self._idle.pop()
        child = child or _Child()
        try:
            if fresh:
                wanted.pause()
                child.started(wanted)
                wanted.begin()
            answer = child.ask(job, seconds, wanted)
        except TimeoutError:
            child.end()
            raise too_slow(kind, seconds) from None
        except _Lost:
            status = child.end()
            if not fresh and wanted.wanted:  # whoever ended it may have done so before
                return self.draw(job, wanted)
            raise GrammarError(
                f"The {kind} can't be compiled: the process that did it ended ({_ending(status)}).",
                hint="Make the grammar smaller, or simpler.",
                param=kind,
            ) from None
        except BaseException:
            child.end()
            raise
        self._give_back(child)
        if answer[:1] == b"\1":
            return unpack(memoryview(answer)[1:])
        refusal = msgspec.msgpack.decode(answer[1:], type=Refusal)
        raise GrammarError(refusal.message, hint=refusal.hint, param=refusal.param)

    def close(self) -> None:
        """Ends those that do nothing; the others end with their jobs."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
            if self._sweep is not None:
                self._sweep.cancel()
        for child in idle:
            child.end()

    def _give_back(self, child: _Child) -> None:
        child.idle_since = monotonic()
        with self._lock:
            if not self._closed:
                self._idle.append(child)
                if self._sweep is None:
                    self._sweep_in(self._idle_seconds)
                return
        child.end()

    def _sweep_in(self, seconds: float) -> None:
        self._sweep = Timer(seconds, self._end_idle)
        self._sweep.daemon = True
        self._sweep.start()

    def _end_idle(self) -> None:
        """Ends, and buries, those that have been idle for long; those that ended by themselves among them."""
        with self._lock:
            now = monotonic()
            over = [child for child in self._idle if now - child.idle_since >= self._idle_seconds]
            self._idle = self._idle[len(over) :]
            self._sweep = None
            if self._idle and not self._closed:
                self._sweep_in(self._idle[0].idle_since + self._idle_seconds - now)
        for child in over:
            child.end()


def too_slow(kind: str, seconds: float) -> GrammarError:
    return GrammarError(
        f"The {kind} takes longer than {seconds:g} seconds to compile.", hint="Make the grammar smaller.", param=kind
    )


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
