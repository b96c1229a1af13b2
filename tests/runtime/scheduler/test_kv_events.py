"""runtime.scheduler.kv_events: a mirror at the other end of the sockets has the tree's whole pages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.key import root_hash
from palmette.runtime.engine import Engine
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.kv_events import KvEventBatch, PagesRemoved, PagesStored
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.kv_events import KvEventPublisher, replay_endpoint

PAGE = 4
WAIT_MS = 5_000


class Mirror:
    """What a router would do."""

    def __init__(self, endpoint: str) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.heard = self.context.socket(zmq.SUB)
        self.heard.subscribe(b"")
        self.heard.connect(endpoint)
        self.asking = self.context.socket(zmq.DEALER)
        self.asking.connect(replay_endpoint(endpoint))
        self.sequence = 0
        self.pages: dict[bytes, tuple[str, bytes]] = {}

    def ask(self, publisher: KvEventPublisher, first: int) -> list[KvEventBatch]:
        self.asking.send(first.to_bytes(8, "big"))
        batches: list[KvEventBatch] = []
        for _ in range(WAIT_MS):
            publisher.publish()
            while self.asking.poll(1):
                data = self.asking.recv()
                if not data:
                    return batches
                batches.append(msgspec.msgpack.decode(data, type=KvEventBatch))
        raise AssertionError("no answer")

    def apply(self, batches: list[KvEventBatch]) -> None:
        for batch in batches:
            for event in batch.events if batch.sequence > self.sequence else ():
                if isinstance(event, PagesStored):
                    path = self.pages[event.parent][1] if event.parent in self.pages else b""
                    assert path or event.parent == root_hash(event.namespace)
                    for index, hashed in enumerate(event.hashes):
                        size = event.page_size * 4
                        path += event.tokens[index * size : (index + 1) * size]
                        self.pages[hashed] = (event.namespace, path)
                elif isinstance(event, PagesRemoved):
                    for hashed in event.hashes:
                        del self.pages[hashed]
                else:
                    self.pages.clear()
            self.sequence = max(self.sequence, batch.sequence)

    def close(self) -> None:
        self.heard.close(0)
        self.asking.close(0)
        self.context.term()


def run(cache: RadixCache, tokens: list[int], namespace: str = "") -> None:
    lease = cache.match(pack(tokens), namespace)
    needed = -(-len(tokens) // PAGE) - len(lease.pages)
    lease.drop_tail()
    cache.finish(lease, pack(tokens), [*lease.pages, *cache.allocate(needed)])


def cached(cache: RadixCache) -> set[tuple[str, bytes]]:
    pages = set()
    for namespace, root in cache.tree.roots.items():
        for node in root.subtree():
            path = b"".join(step.key for step in reversed(list(node.path())))
            pages |= {(namespace, path[:end]) for end in range(4 * PAGE, len(path) + 1, 4 * PAGE)}
    return pages


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/events"


@pytest.fixture
def cache() -> RadixCache:
    return RadixCache(24, PAGE)


@pytest.fixture
def publisher(cache: RadixCache, endpoint: str) -> Iterator[KvEventPublisher]:
    run(cache, [7] * 9)  # what is there before anybody listens is told too
    publisher = KvEventPublisher(cache, endpoint, kept=4_000)
    yield publisher
    publisher.close()


def test_a_mirror_follows_whatever_happens(cache: RadixCache, endpoint: str, publisher: KvEventPublisher) -> None:
    rng, mirror = random.Random(5), Mirror(endpoint)
    for step in range(200):
        base = [[1] * 30, [2] * 30, [1] * 10 + [3] * 20][rng.randrange(3)]
        run(cache, base[: rng.randint(1, 30)] + rng.choices((1, 2, 3), k=3), rng.choice(("", "b")))
        if rng.random() < 0.05:
            cache.clear()
        publisher.publish()
        if step % 7 == 0:
            mirror.apply(mirror.ask(publisher, mirror.sequence + 1))
            assert set(mirror.pages.values()) == cached(cache)
    mirror.close()


def test_batches_are_heard_in_order_without_being_asked_for(
    cache: RadixCache, endpoint: str, publisher: KvEventPublisher
) -> None:
    mirror = Mirror(endpoint)
    first = 0
    for step in range(1_000):  # until the subscription is through
        run(cache, [step, *range(8)])
        publisher.publish()
        if mirror.heard.poll(5):
            first = msgspec.msgpack.decode(mirror.heard.recv(), type=KvEventBatch).sequence
            break
    run(cache, [5] * 9)
    publisher.publish()
    assert first
    for expected in range(first + 1, publisher.sequence + 1):  # more than one, where the first took its time
        assert mirror.heard.poll(WAIT_MS)
        batch = msgspec.msgpack.decode(mirror.heard.recv(), type=KvEventBatch)
        assert batch.sequence == expected
    assert batch.events[-1] == PagesStored("", PAGE, root_hash(""), batch.events[-1].hashes, pack([5] * 8))  # type: ignore[union-attr]
    mirror.close()


def test_what_is_kept_is_bounded_and_the_whole_tree_takes_its_place(
    cache: RadixCache, endpoint: str, publisher: KvEventPublisher
) -> None:
    mirror = Mirror(endpoint)
    for step in range(100):
        run(cache, [step] * 20)
        publisher.publish()
    assert publisher._kept_bytes <= 4_000
    batches = mirror.ask(publisher, 0)
    assert len(batches) == 1
    assert batches[0].sequence == publisher.sequence
    mirror.apply(batches)
    assert set(mirror.pages.values()) == cached(cache)
    assert mirror.ask(publisher, publisher.sequence + 1) == []
    mirror.asking.send(b"nonsense, and long")
    publisher.publish()
    mirror.close()


def test_an_engine_with_the_option_publishes(endpoint: str) -> None:
    with Engine("tiny", threads=1, kv_tokens=512, page_size=PAGE, kv_events=endpoint) as engine:
        mirror = Mirror(endpoint)
        output = engine.generate(list(range(10, 30)), SamplingParams(max_tokens=4, temperature=0.0))
        paths: set[bytes] = set()
        for _ in range(20):  # an idle engine answers within a second or two
            mirror.asking.send((0).to_bytes(8, "big"))
            while mirror.asking.poll(WAIT_MS) and (data := mirror.asking.recv()):
                mirror.apply([msgspec.msgpack.decode(data, type=KvEventBatch)])
            paths = {path for _, path in mirror.pages.values()}
            if len(paths) >= 5:
                break
        assert output
        assert pack(range(10, 30)) in paths
        mirror.close()


def test_an_endpoint_without_a_port_is_refused() -> None:
    assert replay_endpoint("tcp://127.0.0.1:5557") == "tcp://127.0.0.1:5558"
    with pytest.raises(InvalidRequest, match="names no port"):
        replay_endpoint("tcp://localhost")
