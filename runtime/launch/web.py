"""The HTTP server under the application: uvicorn with our connections, ended by launch and not by signals.

Used by server.py, and by tests and benchmarks that serve an application of their own.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Generator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from palmette.runtime.api.limits import Limits
from palmette.runtime.launch.connections import ACCEPTED_AT_ONCE, Connections
from palmette.runtime.metrics import WebMetrics

BACKLOG = 2048  # connections that the system holds until they are accepted
TICK_SECONDS = 0.1


class Web(uvicorn.Server):
    """`await serve([listener])` until `should_exit`; then what runs may go on for `drain_seconds`."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits = Limits(),
        *,
        drain_seconds: int = 1,
        metrics: WebMetrics | None = None,
    ) -> None:
        self.open_connections = Connections(limits, metrics)
        self._slept: float | None = None  # since when its main loop does; seconds, monotonic
        http: Any = self.open_connections  # called like the class that it stands for
        super().__init__(
            uvicorn.Config(
                app,
                http=http,
                ws="none",
                interface="asgi3",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                headers=[("server", "palmette")],
                forwarded_allow_ips="127.0.0.1,::1",  # said here, so that no environment variable says otherwise
                workers=1,
                backlog=ACCEPTED_AT_ONCE,
                timeout_keep_alive=max(1, round(limits.keep_alive_seconds)),
                timeout_graceful_shutdown=drain_seconds,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are launch's: uvicorn would raise them again at its end, before the engine has been stopped."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio has one number for what waits and for what it accepts at once

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn's main loop, which sleeps TICK_SECONDS between any two."""
        if self._slept is not None:
            late = time.monotonic() - self._slept - TICK_SECONDS
            self.open_connections.metrics.loop_lag.observe(max(0.0, late))
        ended = await super().on_tick(counter)
        self._slept = time.monotonic()
        return ended

    def end_now(self) -> None:
        """Nothing is waited for, and nobody is."""
        self.should_exit = self.force_exit = True
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if transport is not None:
                transport.abort()
