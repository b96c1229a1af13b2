"""How long a token takes from the engine's send to the socket's write, with many streams open.

`python -m benchmarks.load`: a front process (HTTP, frontend, ZeroMQ link) as `palmette serve` runs it, an engine
process that replays tokens at a given rate in place of a model, and a process of clients that read. Times are of one
clock (CLOCK_MONOTONIC), which all processes of a machine share; the write is the moment at which the server has handed
an event to its socket. `--shape spread` sends each token in a message of its own; `step` sends one message for all
streams, as a step of a full batch does. `--beside MODEL` measures the same while a whole server of that model decodes
on the same machine; `--engine MODEL` has that model's real engine in the replaying one's place, which sends what it
computes, as fast as it does. It ends within `--limit` seconds, one way or the other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palmette.runtime.api.app import create_app, warm_up
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core
from palmette.runtime.frontend import Frontend
from palmette.runtime.launch.listening import listen
from palmette.runtime.launch.server import SWITCH_SECONDS, private_folder
from palmette.runtime.launch.web import Web
from palmette.runtime.link import ZmqLink
from palmette.runtime.messages.replies import Counters, EngineReady, Finish, Generated, Heartbeat, Reply, Usage
from palmette.runtime.messages.requests import Generate, Shutdown
from palmette.runtime.messages.tokens import count, pack
from palmette.runtime.scheduler.process import EngineSockets, serve_core
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.turns import TurnRenderer

READY = EngineReady(
    model="replay", context_length=1 << 20, kv_tokens=1 << 20, page_size=16, threads=1, dtype="none", kernels="none",
    load_seconds=0.0,
)  # fmt: skip
START_SECONDS = 120.0  # for the server beside to be ready
STOP_SECONDS = 45.0  # for it to end
TOKENS = load_tokenizer(resolve("tiny")).encode("the tokens of a model and its words ", special=False)


def engine(requests: str, replies: str, streams: int, rate: float, seconds: float, shape: str, out: str) -> None:
    """Waits for all streams, then replays; writes the send time of every token as JSON: {id: [seconds …]}."""
    sockets = EngineSockets(requests, replies)
    sockets.send([READY, Heartbeat(Counters())])
    ids: list[str] = []
    while len(ids) < streams:
        ids += [request.id for request in sockets.receive(0.1) if isinstance(request, Generate)]
    sent: dict[str, list[float]] = defaultdict(list)
    group = 1 if shape == "spread" else streams
    begun, turn = time.monotonic(), 0
    while (due := begun + turn * group / rate) < begun + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        chosen = [ids[(turn * group + index) % streams] for index in range(group)]
        batch: list[Reply] = [Generated(id=each, tokens=pack([TOKENS[turn % len(TOKENS)]])) for each in chosen]
        now = time.monotonic()
        sockets.send(batch)
        for each in chosen:
            sent[each].append(now)
        turn += 1
    for each in ids:
        finish = Finish(reason="stop", usage=Usage(), kept_tokens=len(sent[each]))
        sockets.send([Generated(id=each, tokens=b"", finish=finish)])
    Path(out).write_text(json.dumps(sent))
    time.sleep(0.5)


class TimedSockets(EngineSockets):
    """Notes when each token was sent."""

    def __init__(self, requests: str, replies: str) -> None:
        super().__init__(requests, replies)
        self.sent: dict[str, list[float]] = defaultdict(list)

    def send(self, replies: Sequence[Reply]) -> None:
        now = time.monotonic()
        for reply in replies:
            if isinstance(reply, Generated):
                self.sent[reply.id] += [now] * count(reply.tokens)
        super().send(replies)


def real_engine(requests: str, replies: str, model: str, streams: int, out: str) -> None:
    """A real one, until it is told to stop; writes what `engine` does."""
    sockets = TimedSockets(requests, replies)
    config = EngineConfig(model=model, max_running=streams, kv_tokens=streams * 128)
    serve_core(build_core(config), sockets)
    sockets.close()
    Path(out).write_text(json.dumps(sockets.sent))


def keep_busy(url: str, streams: int) -> None:
    """Outputs of so many clients, until this process is ended."""

    async def one(http: httpx.AsyncClient, number: int) -> None:
        body = {"prompt": f"Chapter {number}", "max_tokens": 256, "ignore_eos": True}
        while True:
            await http.post("/v1/completions", json=body)

    async def all_of_them() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=None) as http:
            await asyncio.gather(*(one(http, number) for number in range(streams)))

    asyncio.run(all_of_them())


@contextlib.contextmanager
def busy_server(model: str | None, streams: int = 8) -> Iterator[Callable[[], float]]:
    """A whole server of `model` that decodes `streams` outputs at a time, on all the threads that it takes. Yields what
    tells how many tokens it has decoded. Raises RuntimeError where it can't be started."""
    if model is None:
        yield lambda: 0.0
        return
    with listen("127.0.0.1", 0) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    program = "from palmette.runtime.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", "--model", model, "--port", url.rpartition(":")[2]]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    clients = multiprocessing.get_context("spawn").Process(target=keep_busy, args=(url, streams), daemon=True)
    try:
        wait_ready(url, server)
        clients.start()
        time.sleep(2)
        yield lambda: decoded(url)
    finally:
        if clients.pid is not None:
            clients.kill()
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)
        server.kill()
        server.wait()


def wait_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < limit:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"The server beside did not become ready (exit status {server.poll()!r}).")


def decoded(url: str) -> float:
    """Tokens that a server has decoded so far, as its engine last told, at most a second ago."""
    found = re.search(
        r'palmette_step_rows_total\{purpose="decode"\} (\S+)', httpx.get(f"{url}/metrics", timeout=30).text
    )
    return float(found[1]) if found is not None else 0.0


class Writes:
    """An ASGI wrapper that notes when the token events of each stream have been handed to the socket."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.at: dict[str, list[float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        times = self.at.setdefault(headers.get(b"x-stream", b"").decode(), [])

        async def sent(message: Message) -> None:
            await send(message)
            body = message.get("body", b"")
            if body.startswith(b'data: {"delta"'):
                times.extend([time.monotonic()] * len(orjson.loads(body[6:])["output_ids"]))

        await self._app(scope, receive, sent)


async def clients(url: str, streams: int, tokens: int) -> None:
    host, port = url.removeprefix("http://").split(":")

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps({"text": "x", "rid": f"r{number}", "stream": True, "ignore_eos": True, "max_tokens": tokens})
        head = f"POST /generate HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        head += f"X-Stream: r{number}\r\n\r\n"
        writer.write((head + body).encode())
        while await reader.read(1 << 16):
            pass
        writer.close()

    await asyncio.gather(*(one(number) for number in range(streams)))


def run_clients(url: str, streams: int, tokens: int) -> None:
    asyncio.run(clients(url, streams, tokens))


async def measure(folder: str, given: argparse.Namespace) -> dict[str, Any]:
    """Raises TimeoutError where it doesn't come to its end within the limit; no process is left."""
    children: list[multiprocessing.process.BaseProcess] = []
    try:
        async with asyncio.timeout(given.limit):
            return await _measured(folder, given, children)
    finally:
        for child in children:  # before the loop's end, which waits for those that wait for them
            child.kill()


async def _measured(
    folder: str, given: argparse.Namespace, children: list[multiprocessing.process.BaseProcess]
) -> dict[str, Any]:
    model = given.engine or "tiny"
    tokenizer = load_tokenizer(resolve(model))
    link = ZmqLink(folder)
    frontend = Frontend(link, tokenizer, TurnRenderer.of(tokenizer), model=model, context_length=1 << 20)
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = create_app(frontend)
    warm_up(app)
    writes = Writes(app)
    web = Web(writes)
    frontend.start()
    requests, replies = link.attach()
    out = f"{folder}/sent.json"
    arguments = (requests, replies, given.streams, given.rate, given.seconds, given.shape, out)
    context = multiprocessing.get_context("spawn")
    replay = context.Process(target=engine, args=arguments)
    if given.engine:
        replay = context.Process(target=real_engine, args=(requests, replies, given.engine, given.streams, out))
    replay.start()
    children.append(replay)
    await frontend.wait_ready()
    serving = asyncio.ensure_future(web.serve(sockets=[listener]))
    tokens = given.tokens if given.engine else 9999
    readers = context.Process(target=run_clients, args=(url, given.streams, tokens), daemon=True)
    readers.start()
    children.append(readers)
    used = time.process_time()
    await asyncio.to_thread(readers.join)
    used = time.process_time() - used
    if given.engine:
        link.send(Shutdown())
    await asyncio.to_thread(replay.join)
    web.should_exit = True
    await serving
    await frontend.close()
    sent: dict[str, list[float]] = json.loads(Path(out).read_text())
    waits = sorted(
        written_at - sent_at
        for name, times in sent.items()
        for sent_at, written_at in zip(times, writes.at[name], strict=True)
    )
    tokens = len(waits)
    spans = [time for times in sent.values() for time in times]
    rate = given.rate if not given.engine else round(tokens / (max(spans) - min(spans)), 1)
    shape = given.shape if not given.engine else "real engine"
    return {
        "streams": given.streams, "chunks_per_second": rate, "shape": shape,
        "beside": given.beside, "tokens": tokens,
        "p50_ms": round(statistics.median(waits) * 1e3, 3), "p99_ms": round(waits[int(tokens * 0.99)] * 1e3, 3),
        "max_ms": round(waits[-1] * 1e3, 3), "front_cpu_us_per_token": round(used / tokens * 1e6, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rate", type=float, default=500.0, help="tokens a second, of all streams together")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--shape", choices=("spread", "step"), default="spread")
    parser.add_argument("--beside", metavar="MODEL", help="measure beside a server of it that decodes")
    parser.add_argument("--engine", metavar="MODEL", help="measure its real engine instead of a replaying one")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds until it is given up")
    parser.add_argument("--tokens", type=int, default=16, help="of each stream, with --engine")
    given = parser.parse_args()
    sys.setswitchinterval(SWITCH_SECONDS)
    with private_folder() as folder, busy_server(given.beside) as beside:
        before, begun = beside(), time.monotonic()
        found = asyncio.run(measure(folder, given))
        if given.beside:
            found["beside_tokens_per_second"] = round((beside() - before) / (time.monotonic() - begun), 1)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    print(json.dumps({**found, "commit": commit.stdout.strip()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
