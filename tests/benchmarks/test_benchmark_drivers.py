"""The HTTP driver and the closed loop, over real HTTP, against a tiny server without a model."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from fake_openai_server import FakeServer, continuation

from benchmarks.drivers.openai_server import LlamaCpp, OpenAICompletions, ServerDriver
from benchmarks.drivers.protocol import Arrival, Completion, DriverError
from benchmarks.loop import run_workload
from benchmarks.text import generated_corpus
from benchmarks.workloads import BUILDERS, Call, Reply, Workload, build


def encode(text: str) -> list[int]:
    return list(text.encode())


@pytest.fixture
def serve() -> Iterator[Callable[[FakeServer], FakeServer]]:
    servers: list[FakeServer] = []

    def start(server: FakeServer) -> FakeServer:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@asynccontextmanager
async def driving(server: FakeServer) -> AsyncIterator[ServerDriver]:
    driver = ServerDriver("fake", server.url, OpenAICompletions("m"), encode)
    try:
        yield driver
    finally:
        await driver.close()


async def test_a_completion_has_ids_times_and_cached_tokens(serve) -> None:
    async with driving(serve(FakeServer())) as driver:
        first = await driver.complete([5, 6, 7], 9)
        second = await driver.complete([5, 6, 8], 2)
    assert first.tokens == tuple(continuation([5, 6, 7], 9))
    assert first.exact_ids
    assert (first.cached_tokens, second.cached_tokens) == (0, 2)
    assert sum(arrival.count for arrival in first.arrivals) == 9
    assert first.started < first.arrivals[0].at <= first.arrivals[-1].at <= first.finished


async def test_text_only_servers_get_their_text_encoded(serve) -> None:
    async with driving(serve(FakeServer(ids=False))) as driver:
        completion = await driver.complete([1, 2], 4)
    assert not completion.exact_ids
    assert completion.tokens == tuple(65 + token % 26 for token in continuation([1, 2], 4))


async def test_a_short_answer_and_a_refusal_are_errors_that_say_what_came(serve) -> None:
    async with driving(serve(FakeServer(short=1))) as driver:
        with pytest.raises(DriverError, match="made 3 tokens where 4"):
            await driver.complete([1], 4)
    async with driving(serve(FakeServer(refuse=True))) as driver:
        with pytest.raises(DriverError, match=r"(?s)400.*prompt too long"):
            await driver.complete([1], 4)


async def test_a_server_that_is_gone_is_an_error(serve) -> None:
    async with driving(FakeServer()) as driver:  # bound, never serving: the port refuses once it is closed
        server = driver
    with pytest.raises((DriverError, RuntimeError)):
        await server.complete([1], 1)


@pytest.mark.parametrize("name", list(BUILDERS))
async def test_every_workload_runs_and_its_server_reuses_up_to_the_ceiling(serve, name: str) -> None:
    (workload,) = build([name], generated_corpus(0), encode, seed=3, shrink=16)
    server = serve(FakeServer())
    async with driving(server) as driver:
        outcome = await run_workload(workload, driver)
    assert outcome.output_tokens == workload.output_tokens
    assert outcome.reuse.prompt_tokens == sum(workload.prompt_lengths)
    assert outcome.reuse.reached is not None
    # requests in flight may see a little more or less than the order of their starts says
    assert outcome.reuse.reached == pytest.approx(outcome.reuse.ceiling, abs=0.1)
    assert server.most_open <= workload.concurrency
    assert outcome.exact_ids
    assert outcome.value > 0


async def test_replies_go_into_later_prompts(serve) -> None:
    calls = (Call(((1, 2),), 3), Call(((1, 2), Reply(0), (9,)), 2))
    async with driving(serve(FakeServer())) as driver:
        outcome = await run_workload(Workload("w", "w", "seconds", calls, 2), driver)
    assert outcome.reuse.prompt_tokens == 2 + 6
    assert outcome.reuse.reusable == outcome.reuse.cached == 4  # the last of three output tokens was never computed


async def test_a_failed_call_fails_the_run_with_its_own_error(serve) -> None:
    calls = tuple(Call(((n,),), 2) for n in range(4))
    async with driving(serve(FakeServer(refuse=True))) as driver:
        with pytest.raises(DriverError):
            await run_workload(Workload("w", "w", "seconds", calls, 2), driver)


def test_rates_of_tokens_that_come_together() -> None:
    arrivals = (Arrival(1.0, 1), Arrival(2.0, 2), Arrival(2.5, 1))
    completion = Completion((1,), (1, 2, 3, 4), 0.5, 2.6, arrivals, None)
    assert completion.first_token_seconds == 0.5
    assert completion.inter_token_seconds == [0.5, 0.5, 0.5]
    assert completion.decode_rate == 3 / 1.5
    with pytest.raises(ValueError, match="one piece"):
        _ = Completion((1,), (1, 2), 0, 1, (Arrival(1.0, 2),), None).decode_rate


def test_llama_cpp_events() -> None:
    dialect = LlamaCpp()
    assert dialect.body([1, 2], 3)["n_predict"] == 3
    assert dialect.read({"content": "a", "tokens": [7]}).tokens == (7,)
    last = dialect.read({"content": "", "stop": True, "tokens_predicted": 3, "timings": {"cache_n": 5}})
    assert (last.completion_tokens, last.cached_tokens) == (3, 5)
