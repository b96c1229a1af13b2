"""What the language itself costs: CPU time a node in process, CPU time a call over HTTP beside a bare request of the
same body, and 1,000 programs of three calls at once beside the same calls without the language.

    python -m benchmarks.language

In process the backend answers at once, so that all the time is the language's. Times are CPU seconds of this process
(`time.process_time`), the medians of `--runs`; over HTTP the server is another process, whose time doesn't count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
from rich.console import Console
from rich.table import Table

import palmette as pt
from benchmarks.peers.base import ROOT, free_port, server_process
from benchmarks.quiet import wait_until_quiet
from palmette.lang.backends.base import Result
from palmette.lang.backends.wire import Server
from palmette.lang.loop import language_loop
from palmette.runtime.config import DEFAULT_MODEL
from palmette.runtime.engine import Engine
from palmette.runtime.messages.branches import ChoiceScores, Chunk, GenerateStep, Part, RunBranch, ScoreStep, Step, Text
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.replies import Finish, Usage
from palmette.runtime.messages.requests import UNWATCHED_SECONDS
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack

USAGE = Usage(prompt_tokens=8, completion_tokens=1, computed_tokens=8)
ANSWER = Chunk(text="x", tokens=pack([1]), finish=Finish(reason="stop", usage=USAGE, kept_tokens=1), usage=USAGE)
SCORES = ChoiceScores(
    tokens=((1,), (2,)), token_texts=(("a",), ("b",)), logprobs=((-1.0,), (-2.0,)), usage=USAGE, chosen=0
)


class InstantBackend:
    """Answers every step at once, always the same."""

    name = "instant"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return language_loop()

    async def open(self, *, namespace: str = "") -> InstantBranch:
        return InstantBranch()

    async def flush_cache(self) -> int:
        return 0

    async def close(self) -> None:
        """Nothing to release."""


class InstantBranch:
    async def run(self, steps: Sequence[Step], *, last: bool = False) -> AsyncGenerator[tuple[int, Result], None]:
        for number, step in enumerate(steps):
            if isinstance(step, GenerateStep):
                yield number, ANSWER
            elif isinstance(step, ScoreStep):
                yield number, SCORES
            else:
                yield number, Chunk()

    async def fork(self, parts: Sequence[Part], count: int) -> list[InstantBranch]:
        return [InstantBranch() for _ in range(count)]

    async def hint(self, hint: BranchHint) -> None:
        """There is no cache."""

    async def close(self) -> None:
        """Nothing to release."""

    def drop(self) -> bool:
        return True


@pt.function
def straight(s: pt.ProgramState, calls: int) -> None:
    """Nothing is read before the end."""
    for number in range(calls):
        s += "Question: what is next?\nAnswer: "
        s += pt.gen(f"answer{number}", max_tokens=8, stop="\n")


@pt.function
def reading(s: pt.ProgramState, calls: int) -> None:
    """Each answer is read before the program goes on."""
    for _ in range(calls):
        s += "Question: what is next?\nAnswer: "
        s += pt.gen("answer", max_tokens=8, stop="\n")
        s["answer"]


@pt.function
async def awaiting(s: pt.ProgramState, calls: int) -> None:
    """`reading` as a coroutine."""
    for _ in range(calls):
        s += "Question: what is next?\nAnswer: "
        s += pt.gen("answer", max_tokens=8, stop="\n")
        await s.aget("answer")


@pt.function
def chatting(s: pt.ProgramState, calls: int) -> None:
    """Turns: four nodes of roles for one text and one gen."""
    for number in range(calls):
        s += pt.user("What is next?")
        s += pt.assistant(pt.gen(f"answer{number}", max_tokens=8, stop="\n"))


@pt.function
def forking(s: pt.ProgramState, calls: int) -> None:
    """One fork for every three calls, joined."""
    for _ in range(calls // 3):
        forks = s.fork(3)
        forks += "Idea: "
        forks += pt.gen("idea", max_tokens=8, stop="\n")
        forks.join()


NODES: dict[str, tuple[pt.Program, float]] = {
    "text, gen; read at the end": (straight, 2),
    "text, gen; each read": (reading, 2),
    "text, gen; each awaited": (awaiting, 2),
    "user turn, assistant turn with gen": (chatting, 6),
    "fork(3) of text and gen, joined": (forking, 2 + 2 / 3),
}
"""Programs by what they do, and their nodes a call."""


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Collections of what another program left shouldn't count here."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def in_process(program: pt.Program, nodes: float, calls: int, runs: int) -> tuple[float, list[float]]:
    """Microseconds of CPU time a node: the median and all runs, programs of `calls` calls."""
    backend = InstantBackend()
    programs = max(1, 600 // calls)

    def once() -> float:
        with quiet_gc():
            start = time.process_time()
            for _ in range(programs):
                program.run(calls, backend=backend).sync()
            return 1e6 * (time.process_time() - start) / (programs * calls * nodes)

    once()
    measured = [once() for _ in range(runs)]
    return statistics.median(measured), measured


# Over HTTP


@dataclass(frozen=True)
class HttpCosts:
    """Microseconds of this process's CPU time a call, medians; `bytes` of a request's body."""

    httpx: float  # a bare request, by the client that most programs use
    bare: float  # by the language's own
    one_call: float  # a program of one call
    three_calls: float  # three, each read
    bytes: int


def one_call(question: str) -> RunBranch:
    """What a program of one call sends."""
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, seed=1)
    parts: tuple[Part, ...] = (Text(f"Question: {question}\nAnswer: "),)
    return RunBranch(steps=(GenerateStep(parts=parts, params=params, reply_seconds=UNWATCHED_SECONDS),), close=True)


@pt.function
def asking(s: pt.ProgramState, question: str, calls: int) -> None:
    for _ in range(calls):
        s += f"Question: {question}\nAnswer: "
        s += pt.gen("answer", max_tokens=4, temperature=0.0, ignore_eos=True, seed=1)
        s["answer"]


async def bare_requests(url: str, count: int) -> float:
    """Microseconds a request: sent and read to the end by httpx, its bytes not looked at."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def once(number: int) -> None:
            body = msgspec.json.encode(one_call(f"what is {number}?"))
            async with client.stream("POST", "/v1/branches/run", content=body) as response:
                async for _ in response.aiter_raw():
                    pass

        await once(0)
        start = time.process_time()
        for number in range(count):
            await once(number)
        return 1e6 * (time.process_time() - start) / count


async def bare_wire_requests(url: str, count: int) -> float:
    """The same by the language's own client."""
    server = Server(url, {})

    async def once(number: int) -> None:
        async with server.request(
            "POST", "/v1/branches/run", msgspec.json.encode(one_call(f"what is {number}?"))
        ) as answer:
            while await answer.read():
                pass

    await once(0)
    start = time.process_time()
    for number in range(count):
        await once(number)
    seconds = time.process_time() - start
    server.close()
    return 1e6 * seconds / count


def program_requests(endpoint: pt.RuntimeEndpoint, count: int, calls: int) -> float:
    asking.run("what is 0?", calls, backend=endpoint).sync()
    start = time.process_time()
    for number in range(count // calls):
        asking.run(f"what is {number}?", calls, backend=endpoint).sync()
    return 1e6 * (time.process_time() - start) / (count // calls * calls)


def over_http(runs: int, count: int) -> HttpCosts:
    """Against `palmette serve` of the tiny model, in a process of its own; the kinds take turns."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", "from palmette.runtime.cli.app import main; main()", "serve"]
    command += ["--model", "tiny", "--port", str(port), "--threads", "1"]
    measured: list[tuple[float, ...]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(
            command, health=f"{url}/health", log=Path(folder, "log"), environment={"PYTHONPATH": str(ROOT / ".src")}
        ),
    ):
        endpoint = pt.RuntimeEndpoint(url)
        for _ in range(runs):
            bare = asyncio.run(bare_requests(url, count)), asyncio.run(bare_wire_requests(url, count))
            measured.append((*bare, program_requests(endpoint, count, 1), program_requests(endpoint, count, 3)))
        endpoint.shutdown()
    httpx_, bare_, one, three = (statistics.median(column) for column in zip(*measured, strict=True))
    return HttpCosts(httpx_, bare_, one, three, bytes=len(msgspec.json.encode(one_call("what is 100?"))))


# 1,000 programs at once


@dataclass(frozen=True)
class Thousand:
    """CPU seconds of the whole process, engine included, medians."""

    programs: int
    without: float  # the same calls on branches of the runtime, no language
    with_coroutines: float
    with_threads: float | None

    def added(self, seconds: float) -> float:
        return seconds / self.without - 1


@pt.function
async def conversing(s: pt.ProgramState, number: int) -> None:
    for call in range(3):
        s += f"Program {number} asks question {call}.\nAnswer: "
        s += pt.gen("answer", max_tokens=4, temperature=0.0, ignore_eos=True)
        await s.aget("answer")


@pt.function
def conversing_in_threads(s: pt.ProgramState, number: int) -> None:
    for call in range(3):
        s += f"Program {number} asks question {call}.\nAnswer: "
        s += pt.gen("answer", max_tokens=4, temperature=0.0, ignore_eos=True)
        s["answer"]


async def on_branches(engine: Engine, programs: int) -> None:
    """What the programs ask of the runtime, asked by hand."""
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)

    async def one(number: int) -> None:
        branch = await engine.frontend.open_branch()
        for call in range(3):
            parts = (Text(f"Program {number} asks question {call}.\nAnswer: "),)
            step = GenerateStep(parts=parts, params=params, reply_seconds=UNWATCHED_SECONDS)
            async for _ in branch.run([step], last=call == 2):
                pass

    await asyncio.gather(*(one(number) for number in range(programs)))


def thousand(model: str, programs: int, runs: int, *, threads: bool, freeze: bool) -> Thousand:
    """`freeze`: what was there before is none of the garbage collector's affair, as in an engine's own process."""
    items = [{"number": number} for number in range(programs)]
    with Engine(model=model, threads=1) as engine:
        kinds: dict[str, Callable[[], object]] = {
            "without": lambda: engine.run(on_branches(engine, programs)),
            "coroutines": lambda: conversing.run_batch(items, backend=engine, num_threads=programs),
        }
        if threads:
            kinds["threads"] = lambda: conversing_in_threads.run_batch(items, backend=engine)
        if freeze:
            gc.collect()
            gc.freeze()
        seconds: dict[str, list[float]] = {name: [] for name in kinds}
        for run in range(runs + 1):
            for name, kind in kinds.items():
                pt.flush_cache(engine)
                start = time.process_time()
                kind()
                if run:  # the first one warms up
                    seconds[name].append(time.process_time() - start)
    median = {name: statistics.median(each) for name, each in seconds.items()}
    return Thousand(programs, median["without"], median["coroutines"], median.get("threads"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--wait", type=float, default=120, help="seconds, at most, for a quiet machine")
    parser.add_argument("--only", choices=("nodes", "http", "thousand"))
    parser.add_argument("--model", default=DEFAULT_MODEL, help="of the 1,000 programs")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--no-threads", action="store_true", help="of the 1,000 programs: coroutines alone")
    parser.add_argument("--freeze", action="store_true", help="of the 1,000 programs: gc.freeze() before they run")
    parser.add_argument("--requests", type=int, default=150, help="a run, over HTTP")
    given = parser.parse_args()
    console = Console()
    console.print(f"load before: {wait_until_quiet(timeout=given.wait)}")
    if given.only in (None, "nodes"):
        table = Table("in process", "µs a node, 3 calls", "µs a node, 30 calls")
        for name, (program, nodes) in NODES.items():
            each = [in_process(program, nodes, calls, given.runs) for calls in (3, 30)]
            table.add_row(name, *(f"{median:.1f} ({min(all_):.1f}–{max(all_):.1f})" for median, all_ in each))
        console.print(table)
    if given.only in (None, "http"):
        costs = over_http(given.runs, given.requests)
        console.print(f"over HTTP, µs of CPU a call, a body of {costs.bytes} bytes, 4 tokens back")
        console.print(f"  bare request: {costs.bare:.0f} (httpx: {costs.httpx:.0f})")
        for name, cost in (("one call", costs.one_call), ("three, each read", costs.three_calls)):
            console.print(
                f"  {name}: {cost:.0f}, {cost - costs.bare:+.0f} above it ({cost - costs.httpx:+.0f} above httpx)"
            )
    if given.only in (None, "thousand"):
        many = thousand(
            given.model, given.programs, min(3, given.runs), threads=not given.no_threads, freeze=given.freeze
        )
        console.print(f"{many.programs} programs of three calls: {many.without:.1f} s of CPU on bare branches", end="")
        console.print(f"; {many.added(many.with_coroutines):+.1%} as coroutines", end="")
        console.print("" if many.with_threads is None else f", {many.added(many.with_threads):+.1%} as plain functions")


if __name__ == "__main__":
    main()
