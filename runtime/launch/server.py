"""The server: a front process (this one: HTTP, frontend) and an engine process that it starts, watches and restarts.

`serve` runs until a signal. The first SIGINT or SIGTERM drains: no new connections, what runs may finish for a
while and is aborted then; the second ends at once. This process loads no torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import palmette
from palmette.runtime.api.access import Keys
from palmette.runtime.api.app import ApiOptions, create_app, warm_up
from palmette.runtime.api.request_log import log as request_log
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.frontend import Frontend
from palmette.runtime.launch.engine_process import EngineProcess, Progress
from palmette.runtime.launch.listening import listen, listen_at, remove, url_of
from palmette.runtime.launch.web import Web
from palmette.runtime.link import ZmqLink
from palmette.runtime.messages.replies import EngineReady
from palmette.runtime.parsers.registry import detect
from palmette.runtime.recording import Recorder, RecordingLink
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.turns import TurnRenderer

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 30000
DRAIN_SECONDS = 30.0
SWITCH_SECONDS = 2e-4  # a thread that wants the interpreter gets it from another after so long
LAST_WORDS_SECONDS = 2  # for the answers of what was aborted at the end of the drain

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Serving:
    """What a start banner shows, once requests can be served."""

    url: str
    engine: EngineReady


def serve(
    config: EngineConfig,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    keys: Keys = Keys(),
    names: Sequence[str] = (),
    uds: Path | None = None,
    drain_seconds: float = DRAIN_SECONDS,
    record: Path | None = None,
    options: ApiOptions = ApiOptions(),
    on_progress: Progress | None = None,
    on_ready: Callable[[Serving], None] | None = None,
) -> int:
    """Serve until a signal; in the main thread. Returns the exit status: 0, or 1 where the engine could not be kept up.

    `port` 0 takes a free one (see Serving.url); `uds`: listen on this socket file instead; `names`: what the model is
    called, by its own name otherwise; `record`: a new file for what was asked (runtime/recording.py); `options`: of
    the HTTP surface. Raises InvalidRequest where the address or the file can't be had, and the engine's own error
    where it can't start (model not found, pool too small …).
    """
    progress = on_progress or (lambda text: None)
    sys.setswitchinterval(SWITCH_SECONDS)
    allow_connections()
    if options.log_requests:
        show_requests()
    listener = listen(host, port) if uds is None else listen_at(uds)
    mine = None if uds is None else uds.stat()
    try:
        with private_folder() as folder:
            server = _Server(config, folder, progress, names=names, record=record, options=options)
            return asyncio.run(server.run(listener, keys, drain_seconds, on_ready or (lambda serving: None)))
    finally:
        listener.close()
        if uds is not None and mine is not None:
            remove(uds, mine)


def allow_connections() -> None:
    """As many open files as this process may have: each connection is one, and the usual limit is for shells."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def show_requests() -> None:
    """`--log-requests`: the lines of that log go to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    request_log.addHandler(handler)
    request_log.setLevel(logging.INFO)
    request_log.propagate = False


@contextlib.contextmanager
def private_folder() -> Iterator[str]:
    """A folder for sockets that only this user can enter; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="palmette-", ignore_cleanup_errors=True) as folder:
        if len(folder) > 80 and os.path.isdir("/tmp"):  # a socket's path has at most 107 bytes
            with tempfile.TemporaryDirectory(prefix="palmette-", dir="/tmp", ignore_cleanup_errors=True) as short:
                yield short
        else:
            yield folder


class _Server:
    """The front process's run: engine up, HTTP up, signals, HTTP down, engine down."""

    def __init__(
        self,
        config: EngineConfig,
        folder: str,
        progress: Progress,
        *,
        names: Sequence[str],
        record: Path | None,
        options: ApiOptions,
    ) -> None:
        files = resolve(config.model)
        tokenizer = load_tokenizer(files, chat_template=config.chat_template)
        template = TurnRenderer.of(tokenizer) if tokenizer.chat_template is not None else None
        self._link = ZmqLink(folder)
        self._frontend = Frontend(
            self._link if record is None else RecordingLink(self._link, Recorder(record)),
            tokenizer,
            template,
            model=names[0] if names else config.model,
            context_length=config.context_length or sys.maxsize,
            formats=detect(tokenizer.chat_template, tools=config.tool_call_parser, reasoning=config.reasoning_parser),
            output_ids=config.output_ids,
            max_open=options.limits.open_requests,
            max_queued_tokens=options.limits.queued_tokens,
        )
        self._engine = EngineProcess(config, self._link, self._frontend, progress)
        self._names = names
        self._options = options
        self._stop_asked = 0

    async def run(
        self,
        listener: socket.socket,
        keys: Keys,
        drain_seconds: float,
        on_ready: Callable[[Serving], None],
    ) -> int:
        app = create_app(
            self._frontend, keys=keys, names=self._names, options=self._options, version=palmette.__version__
        )
        web = Web(
            app,
            self._options.limits,
            drain_seconds=max(1, round(drain_seconds)) + LAST_WORDS_SECONDS,
            metrics=self._frontend.metrics.web,
        )
        warm_up(app)
        gc.collect()
        gc.freeze()  # what is there now stays: no later collection looks at it, which would take 50 ms
        self._frontend.start()
        async with self._signals(web, drain_seconds):
            try:
                starting = asyncio.ensure_future(self._engine.start())
                while not starting.done() and not self._stop_asked:
                    await asyncio.wait({starting}, timeout=0.1)
                if not starting.done():
                    starting.cancel()
                    await asyncio.wait({starting})
                    return 0
                ready = await starting
                watching = asyncio.ensure_future(self._engine.keep_up(lambda: self._end(web)))
                on_ready(Serving(url_of(listener), ready))
                await web.serve(sockets=[listener])
                watching.cancel()
                await asyncio.wait({watching})  # it may be starting an engine: that one is ended below
                return 1 if self._engine.given_up else 0
            finally:
                await self._engine.stop()
                await self._frontend.close()

    def _end(self, web: Web) -> None:
        web.should_exit = True

    @contextlib.asynccontextmanager
    async def _signals(self, web: Web, drain_seconds: float) -> AsyncIterator[None]:
        """The first signal drains, the second ends at once. What the drain does not see end is aborted."""
        loop = asyncio.get_running_loop()

        def asked() -> None:
            self._stop_asked += 1
            web.should_exit = True
            if self._stop_asked > 1:
                web.end_now()
            else:
                loop.call_later(drain_seconds, self._frontend.abort, None)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
