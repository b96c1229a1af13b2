"""Publishes which pages the cache stores and removes, over ZeroMQ, so that a router elsewhere can mirror the tree.

Two sockets. PUB at the endpoint: each message is a KvEventBatch in msgpack, its `sequence` counting up by one. ROUTER
at `replay_endpoint(endpoint)`: who asks with a sequence (8 bytes, big-endian) is sent every batch from that one on,
and an empty message at the end; where that batch is gone from the bounded buffer, one that begins with PagesCleared and
tells the whole tree takes the place of all up to its sequence. So a mirror subscribes, asks from 0, applies what has a
higher sequence than it knows, and asks again where it sees a gap.

Made only where someone wants it; a slow subscriber loses batches, it never holds the engine up. The engine that is
wired with it is a `PublishingCore`: any core, and a publication after each step and when idle.
"""

from __future__ import annotations

import time
import weakref
from collections import deque

import msgspec
import zmq

from palmette.radix_cache.cache import RadixCache
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.kv_events import KvEvent, KvEventBatch
from palmette.runtime.messages.replies import Counters, Reply
from palmette.runtime.messages.requests import Request
from palmette.runtime.scheduler.process import Core

REPLAY_BYTES = 16 << 20
SEQUENCE_BYTES = 8


def replay_endpoint(endpoint: str) -> str:
    """Where missed batches are asked for: the next port of a tcp endpoint, else a name beside it."""
    scheme, _, address = endpoint.partition("://")
    if scheme != "tcp":
        return endpoint + "-replay"
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise InvalidRequest(
            f"kv_events={endpoint!r} names no port.", hint="Give it as tcp://HOST:PORT, or as ipc://PATH.",
            param="kv_events",
        )  # fmt: skip
    return f"tcp://{host}:{int(port) + 1}"


class KvEventPublisher:
    """`kept`: bytes of sent batches that are kept for those who missed them. Raises zmq.ZMQError where the endpoint
    can't be bound."""

    def __init__(self, cache: RadixCache, endpoint: str, *, kept: int = REPLAY_BYTES) -> None:
        self.sequence = 0  # of the newest batch; the first is 1
        self._pending: list[KvEvent] = []
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes, self._most_bytes = 0, kept
        self._encoder = msgspec.msgpack.Encoder()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._out = context.socket(zmq.PUB)
        self._out.bind(endpoint)
        self._asked = context.socket(zmq.ROUTER)
        self._asked.bind(replay_endpoint(endpoint))
        # A context waits for its sockets when it is collected, so they are closed before it, however this ends.
        self._close = weakref.finalize(self, _close, context, self._out, self._asked)
        self._events = cache.listen(self._pending.append)

    def publish(self) -> None:
        """Sends what has happened since the last call, and answers those who ask for what they missed. Never waits."""
        if self._pending:
            data = self._batch(tuple(self._pending))
            self._pending.clear()
            self._out.send(data)
            self._keep(data)
        while self._asked.poll(0):
            self._answer(self._asked.recv_multipart())

    def close(self) -> None:
        """Also done when the publisher is dropped."""
        self._close()

    def _batch(self, events: tuple[KvEvent, ...]) -> bytes:
        self.sequence += 1
        return self._encoder.encode(KvEventBatch(self.sequence, time.time(), events))

    def _keep(self, data: bytes) -> None:
        self._kept.append((self.sequence, data))
        self._kept_bytes += len(data)
        while self._kept_bytes > self._most_bytes:
            _, dropped = self._kept.popleft()
            self._kept_bytes -= len(dropped)

    def _answer(self, frames: list[bytes]) -> None:
        """`frames`: who asks, and the sequence. What isn't one is answered with the empty message alone."""
        sender, *rest = frames
        if rest and len(rest[-1]) == SEQUENCE_BYTES:
            first = max(1, int.from_bytes(rest[-1], "big"))
            for data in self._since(first):
                self._reply(sender, data)
        self._reply(sender, b"")

    def _since(self, first: int) -> list[bytes]:
        if first > self.sequence or (self._kept and self._kept[0][0] <= first):
            return [data for sequence, data in self._kept if sequence >= first]
        whole = KvEventBatch(self.sequence, time.time(), tuple(self._events.snapshot()))
        return [self._encoder.encode(whole)]

    def _reply(self, sender: bytes, data: bytes) -> None:
        try:
            self._asked.send_multipart([sender, data], zmq.NOBLOCK)
        except zmq.Again:
            return  # it reads too slowly, sees no end, and asks again


def _close(context: zmq.Context[zmq.Socket[bytes]], *sockets: zmq.Socket[bytes]) -> None:
    for socket in sockets:
        socket.close(0)
    context.term()


class PublishingCore:
    """An engine core that tells what its cache holds. Used like the core that it wraps, by the same one thread."""

    def __init__(self, core: Core, publisher: KvEventPublisher) -> None:
        self.ready = core.ready
        self._core = core
        self._publisher = publisher

    @property
    def has_work(self) -> bool:
        return self._core.has_work

    def submit(self, request: Request) -> None:
        self._core.submit(request)

    def step(self) -> list[Reply]:
        replies = self._core.step()
        self._publisher.publish()
        return replies

    def upkeep(self) -> None:
        self._core.upkeep()
        self._publisher.publish()

    def close(self) -> None:
        self._core.close()
        self._publisher.close()

    def counters(self) -> Counters:
        return self._core.counters()
