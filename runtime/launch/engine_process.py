"""An engine process as its front sees it: started, waited for, restarted when it dies, stopped.

Used by server.py; knows processes and the link, not HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import EngineDied, PalmetteError
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import ZmqLink
from palmette.runtime.messages.replies import EngineReady
from palmette.runtime.messages.requests import Shutdown

EXIT_SECONDS = 5.0
MOST_RESTARTS = 8  # in a row, none of them up for STEADY_SECONDS
STEADY_SECONDS = 60.0
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 30.0

# The folder that holds the package, so that the child finds it wherever this process did.
PACKAGE_ROOT = str(Path(__file__).absolute().parents[3])
PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from palmette.runtime.engine import build_core; from palmette.runtime.scheduler.process import main;"
    " sys.exit(main(lambda config, progress: build_core(config, progress=progress), sys.argv[2:]))"
)

Progress = Callable[[str], None]

log = logging.getLogger(__name__)


class EngineProcess:
    """One engine at a time. `given_up`: it died so often that it is not started again."""

    def __init__(self, config: EngineConfig, link: ZmqLink, frontend: Frontend, progress: Progress) -> None:
        self._config = config
        self._link = link
        self._frontend = frontend
        self._progress = progress
        self._process: asyncio.subprocess.Process | None = None
        self.given_up = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self) -> EngineReady:
        """Start an engine and wait until it is ready. Raises its error, or EngineDied, where it ends before."""
        self._frontend.expect_engine(self._progress)
        requests, replies = self._link.attach()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                PROGRAM,
                PACKAGE_ROOT,
                *("--requests", requests, "--replies", replies, "--front", str(os.getpid())),
                *("--config", msgspec.json.encode(self._config).decode()),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is the front's
            )
        except OSError as error:  # no process or memory to spare
            raise EngineDied(f"No process for the engine can be started: {error}.") from error
        ready = asyncio.ensure_future(self._frontend.wait_ready())
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                await asyncio.wait({ready}, timeout=0.2)  # what it said before it ended may still be under way
            if not ready.done():
                raise EngineDied(f"The engine ended before it was ready ({_ending(self._process)}).")
            return ready.result()
        except PalmetteError:
            await self._kill()
            raise
        finally:
            ready.cancel()
            ended.cancel()

    async def keep_up(self, give_up: Callable[[], None]) -> None:
        """Watch the engine; restart it when it dies, with growing pauses. Calls `give_up` where that is no use."""
        failures = 0
        reason = ""
        while failures < MOST_RESTARTS:
            if self._process is not None:
                started = time.monotonic()
                await self._process.wait()
                reason = f"The engine process ended ({_ending(self._process)})"
                failures = 0 if time.monotonic() - started > STEADY_SECONDS else failures
            failures += 1
            log.error("%s; restarting it", reason)
            self._link.detach(EngineDied(f"{reason}.", hint="It is being restarted: try again in a moment."))
            self._frontend.engine_lost("restarting", f"{reason}; it is being restarted.")
            await asyncio.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1)))
            try:
                await self.start()
            except PalmetteError as error:
                reason = f"The engine could not be restarted: {error}"
        self.given_up = True
        self._frontend.engine_lost("failed", f"{reason} It died {failures} times in a row and is given up.")
        log.error("the engine died %d times in a row; giving up", failures)
        give_up()

    async def stop(self) -> None:
        """Ask the engine to end, and end it where it doesn't. Idempotent."""
        process = self._process
        if process is not None and process.returncode is None and self._frontend.health().status == "ok":
            self._link.send(Shutdown())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), EXIT_SECONDS)
        await self._kill()

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _ending(process: asyncio.subprocess.Process) -> str:
    code = process.returncode
    if code is None:
        return "it still runs"
    return f"signal {-code}" if code < 0 else f"exit status {code}"
