"""Both links: every request is answered, whatever becomes of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palmette.runtime.errors import EngineDied
from palmette.runtime.link import EngineLink, LocalLink, OpenRequests, ZmqLink
from palmette.runtime.messages.replies import Counters, EngineReady, Failed, Flushed, Generated, Heartbeat, Reply
from palmette.runtime.messages.requests import FlushCache, Generate, Request, Shutdown
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.process import EngineSockets, serve_core

READY = EngineReady(
    model="m", context_length=8, kv_tokens=8, page_size=1, threads=1, dtype="d", kernels="k", load_seconds=0.0
)


class EchoCore:
    """Answers each FlushCache in the next step; a Generate is never answered; `fault` breaks a step.

    Its counters tell how often it was let rest.
    """

    ready = READY

    def __init__(self) -> None:
        self.waiting: list[Request] = []
        self.fault = threading.Event()
        self.rests = 0
        self.closed = False

    def submit(self, request: Request) -> None:
        if isinstance(request, FlushCache):
            self.waiting.append(request)

    @property
    def has_work(self) -> bool:
        return bool(self.waiting) or self.fault.is_set()

    def step(self) -> list[Reply]:
        if self.fault.is_set():
            raise RuntimeError("broken")
        done, self.waiting = self.waiting, []
        return [Flushed(request.id, 1) for request in done if isinstance(request, FlushCache)]

    def upkeep(self) -> None:
        assert not self.has_work
        self.rests += 1

    def close(self) -> None:
        self.closed = True

    def counters(self) -> Counters:
        return Counters(steps=5, quarantined_pages=self.rests)


class Inbox:
    """What a link delivered."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.threads: set[int] = set()
        self._more = asyncio.Event()

    def __call__(self, replies: Sequence[Reply]) -> None:
        self.replies += replies
        self.threads.add(threading.get_ident())
        self._more.set()

    async def until(self, found: Callable[[Reply], bool]) -> Reply:
        async with asyncio.timeout(10):
            while True:
                for reply in self.replies:
                    if found(reply):
                        return reply
                self._more.clear()
                await self._more.wait()


def answer_to(request_id: str) -> Callable[[Reply], bool]:
    return lambda reply: getattr(reply, "id", None) == request_id


def generate(request_id: str) -> Generate:
    return Generate(id=request_id, prompt=pack([1]), params=SamplingParams())


@contextlib.asynccontextmanager
async def zmq_engine(link: ZmqLink, core: EchoCore) -> AsyncIterator[threading.Thread]:
    """The engine process's loop in a thread."""
    requests, replies = link.attach()

    def run() -> None:
        sockets = EngineSockets(requests, replies)
        with contextlib.suppress(RuntimeError):
            serve_core(core, sockets)
        sockets.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        core.fault.set()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


@pytest.fixture(params=["local", "zmq"])
async def linked(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[EngineLink, Inbox, EchoCore]]:
    core, inbox = EchoCore(), Inbox()
    if request.param == "local":
        local = LocalLink(core)
        local.start(inbox)
        yield local, inbox, core
        await local.close()
    else:
        link = ZmqLink(str(tmp_path))
        link.start(inbox)
        async with zmq_engine(link, core):
            yield link, inbox, core
        await link.close()


async def test_ready_then_answers_then_heartbeats(linked: tuple[EngineLink, Inbox, EchoCore]) -> None:
    link, inbox, _ = linked
    await inbox.until(lambda reply: reply == READY)
    for index in range(20):
        link.send(FlushCache(str(index)))
    for index in range(20):
        await inbox.until(answer_to(str(index)))
    assert sum(isinstance(reply, Flushed) for reply in inbox.replies) == 20
    beat = await inbox.until(lambda reply: isinstance(reply, Heartbeat))
    assert isinstance(beat, Heartbeat)
    assert beat.counters.steps == 5
    await inbox.until(lambda reply: isinstance(reply, Heartbeat) and reply.counters.emit_seconds > 0)
    assert inbox.threads == {threading.get_ident()}


async def test_an_idle_engine_is_let_rest_before_a_heartbeat(linked: tuple[EngineLink, Inbox, EchoCore]) -> None:
    _, inbox, core = linked
    await inbox.until(lambda reply: isinstance(reply, Heartbeat) and reply.counters.quarantined_pages > 0)
    assert core.rests <= 3, "once a heartbeat, not once a turn of the loop"


async def test_closing_answers_what_is_open(linked: tuple[EngineLink, Inbox, EchoCore]) -> None:
    link, inbox, core = linked
    await inbox.until(lambda reply: reply == READY)
    link.send(generate("g"))
    await link.close()
    await link.close()
    failed = await inbox.until(answer_to("g"))
    assert isinstance(failed, Failed)
    assert failed.error.kind == "Aborted"
    assert core.closed == isinstance(link, LocalLink)  # an engine process goes on; it is told to shut down


async def test_a_core_that_breaks_fails_open_and_later_requests() -> None:
    core, inbox = EchoCore(), Inbox()
    link = LocalLink(core)
    link.start(inbox)
    link.send(generate("open"))
    core.fault.set()
    link.send(FlushCache("wakes it"))
    failed = await inbox.until(answer_to("open"))
    assert isinstance(failed, Failed)
    assert failed.error.kind == "EngineDied"
    assert "RuntimeError: broken" in failed.error.message
    link.send(generate("later"))
    assert isinstance(await inbox.until(answer_to("later")), Failed)
    await link.close()
    assert core.closed


async def test_zmq_engines_come_and_go(tmp_path: Path) -> None:
    inbox = Inbox()
    link = ZmqLink(str(tmp_path))
    link.start(inbox)
    link.send(generate("before"))
    failed = await inbox.until(answer_to("before"))
    assert isinstance(failed, Failed)
    assert failed.error.kind == "EngineDied"
    for turn in range(2):
        async with zmq_engine(link, EchoCore()):
            await inbox.until(lambda reply: reply == READY)
            link.send(generate(f"open {turn}"))
            link.send(FlushCache(f"done {turn}"))
            await inbox.until(answer_to(f"done {turn}"))
            assert link.open_requests == 1
        link.detach(EngineDied("gone"))
        lost = await inbox.until(answer_to(f"open {turn}"))
        assert isinstance(lost, Failed)
        assert lost.error.message == "gone"
        inbox.replies.clear()
    await link.close()


@pytest.mark.parametrize("value", [{"priority": 2**70}, {"namespace": "half \ud800"}])
async def test_what_the_wire_cannot_hold_fails_alone(tmp_path: Path, value: dict[str, Any]) -> None:
    """Requests of one turn travel together; one that can't be written takes no other with it."""
    inbox = Inbox()
    link = ZmqLink(str(tmp_path))
    link.start(inbox)
    async with zmq_engine(link, EchoCore()):
        await inbox.until(lambda reply: reply == READY)
        link.send(FlushCache("before"))
        link.send(msgspec.structs.replace(generate("bad"), **value))
        link.send(FlushCache("behind"))
        failed = await inbox.until(answer_to("bad"))
        assert isinstance(failed, Failed)
        assert failed.error.kind == "InvalidRequest"
        for name in ("before", "behind"):
            assert isinstance(await inbox.until(answer_to(name)), Flushed)
        assert link.open_requests == 0
    await link.close()


async def test_shutdown_ends_the_engine_s_loop(tmp_path: Path) -> None:
    inbox = Inbox()
    link = ZmqLink(str(tmp_path))
    link.start(inbox)
    async with zmq_engine(link, EchoCore()) as thread:
        await inbox.until(lambda reply: reply == READY)
        link.send(FlushCache("last"))
        link.send(Shutdown(drain=True))
        await inbox.until(answer_to("last"))
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()
    await link.close()


def test_replies_of_requests_that_are_not_open_are_dropped() -> None:
    opened = OpenRequests()
    opened.note_sent(generate("a"))
    known = opened.note_replies(
        [Generated(id="a", tokens=b""), Generated(id="b", tokens=b""), Flushed("c", 1), Heartbeat(Counters())]
    )
    assert known == [Generated(id="a", tokens=b""), Heartbeat(Counters())]
    assert [reply.id for reply in opened.fail_all(EngineDied("x")) if isinstance(reply, Failed)] == ["a"]
    assert len(opened) == 0


async def test_a_front_that_stumbles_over_one_reply_gets_the_next(
    linked: tuple[EngineLink, Inbox, EchoCore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    link, inbox, _ = linked
    await inbox.until(lambda reply: reply == READY)
    take = type(inbox).__call__

    def stumble(self: Inbox, replies: Sequence[Reply]) -> None:
        take(self, replies)
        if any(getattr(reply, "id", "") == "bad" for reply in replies):
            raise KeyError("bad")

    monkeypatch.setattr(Inbox, "__call__", stumble)
    link.send(FlushCache("bad"))
    await inbox.until(answer_to("bad"))
    link.send(FlushCache("good"))
    await inbox.until(answer_to("good"))
    assert "KeyError: 'bad'" in caplog.text
