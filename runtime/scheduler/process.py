"""The engine process: a ZeroMQ loop around the scheduler, and the watch that ends it with its front.

Started by launch in a process of its own. Knows sockets and the core's calls, not what they do.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import zmq

from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import InternalError, PalmetteError
from palmette.runtime.messages.replies import (
    Counters,
    EngineFailed,
    EngineProgress,
    EngineReady,
    Heartbeat,
    Reply,
    ReplyBatch,
)
from palmette.runtime.messages.requests import Request, RequestBatch, Shutdown

HEARTBEAT_SECONDS = 1.0
WATCH_SECONDS = 1.0
SWITCH_SECONDS = 2e-4  # after which a thread that compiles a grammar gives the interpreter to the loop

log = logging.getLogger(__name__)


class Core(Protocol):
    """What the loop needs of an engine core."""

    ready: EngineReady

    def submit(self, request: Request) -> None: ...

    def step(self) -> list[Reply]: ...

    @property
    def has_work(self) -> bool: ...

    def upkeep(self) -> None: ...

    def close(self) -> None: ...

    def counters(self) -> Counters: ...


BuildCore = Callable[[EngineConfig, Callable[[str], None]], Core]


class EngineSockets:
    """The engine's ends of the two sockets that its front has bound."""

    def __init__(self, requests: str, replies: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._in = self._context.socket(zmq.PULL)
        self._in.setsockopt(zmq.RCVHWM, 0)
        self._in.connect(requests)
        self._out = self._context.socket(zmq.PUSH)
        self._out.setsockopt(zmq.SNDHWM, 0)
        self._out.setsockopt(zmq.LINGER, 2000)
        self._out.connect(replies)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(RequestBatch)

    def receive(self, wait_seconds: float) -> list[Request]:
        """Every request that has arrived; waits for the first so long."""
        requests: list[Request] = []
        if not self._in.poll(int(wait_seconds * 1000)):
            return requests
        while True:
            try:
                data = self._in.recv(zmq.NOBLOCK)
            except zmq.Again:
                return requests
            requests += self._decoder.decode(data).requests

    def send(self, replies: Sequence[Reply]) -> None:
        self._out.send(self._encoder.encode(ReplyBatch(tuple(replies))))

    def close(self) -> None:
        self._in.close(0)
        self._out.close()
        self._context.term()


def serve_core(core: Core, sockets: EngineSockets) -> None:
    """Receive, step, emit, until a Shutdown; a draining one ends it when the work is done."""
    sockets.send([core.ready])
    next_beat = emit_seconds = 0.0
    draining = False
    while not (draining and not core.has_work):
        idle = 0.0 if core.has_work else max(0.0, min(HEARTBEAT_SECONDS, next_beat - time.monotonic()))
        for request in sockets.receive(idle):
            draining = draining or isinstance(request, Shutdown)
            core.submit(request)
        worked = core.has_work
        replies = core.step() if worked else []
        now = time.monotonic()
        due = now >= next_beat
        if due or (worked and not core.has_work):  # its counters would be of a moment at which something ran
            next_beat = now + HEARTBEAT_SECONDS if due else next_beat
            if due and not core.has_work:
                core.upkeep()
            replies = [*replies, Heartbeat(msgspec.structs.replace(core.counters(), emit_seconds=emit_seconds))]
        if replies:
            start = time.perf_counter()
            sockets.send(replies)
            emit_seconds += time.perf_counter() - start


def main(build_core: BuildCore, arguments: Sequence[str]) -> int:
    """The process. `build_core` loads the model; arguments come from launch. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="palmette-engine")
    parser.add_argument("--requests", required=True)
    parser.add_argument("--replies", required=True)
    parser.add_argument("--front", type=int, required=True, help="process id of the front")
    parser.add_argument("--config", required=True, help="EngineConfig as JSON")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="engine: %(levelname)s %(message)s")
    end_with(given.front)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the front's: it drains, then tells us
    sockets = EngineSockets(given.requests, given.replies)
    try:
        config = msgspec.json.decode(given.config, type=EngineConfig)
        core = build_core(config, lambda text: sockets.send([EngineProgress(text)]))
    except Exception as error:  # the front tells it to whoever started the server
        known = isinstance(error, PalmetteError)
        if not known:
            log.exception("the engine can't start")
        shown = error if isinstance(error, PalmetteError) else InternalError(
            f"The engine can't start: {type(error).__name__}: {error}.", hint="Its log has the details."
        )  # fmt: skip
        sockets.send([EngineFailed(shown.info())])
        sockets.close()
        return 1
    # Model and vocabulary stay: looking through them took the collector 0.1 to 0.4 s, and everybody's tokens waited.
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    with contextlib.closing(core):
        serve_core(core, sockets)
    sockets.close()
    return 0


def end_with(front: int) -> None:
    """This process dies when the front does: at once where Linux can say so, else within a second or two."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != front:
        os._exit(1)

    def watch() -> None:
        while os.getppid() == front:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="palmette-front-watch", daemon=True).start()
