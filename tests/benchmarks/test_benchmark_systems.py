"""The engine's driver, the comparison and the overhead on the tiny model: real engines, small shapes."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.drivers.engine import EngineDriver
from benchmarks.drivers.protocol import Arrival, Completion, DriverError
from benchmarks.loop import run_workload
from benchmarks.model import shape_of
from benchmarks.overhead import measure_overhead
from benchmarks.peers import SYSTEMS
from benchmarks.peers.base import PeerError, free_port, server_process
from benchmarks.run import compare, parse
from benchmarks.text import generated_corpus
from benchmarks.workloads import BUILDERS, Call, Workload, build
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import Engine


def encode(text: str) -> list[int]:
    """Ids that every vocabulary has."""
    return [1 + byte % 200 for byte in text.encode()]


def tiny_workloads(*names: str, seed: int = 1) -> list[Workload]:
    return build(names, generated_corpus(0), encode, seed, shrink=32)


async def test_every_workload_runs_on_the_engine_with_all_the_reuse_there_is() -> None:
    driver = EngineDriver("engine", Engine(model="tiny", threads=1))
    try:
        # the tiny model is so quick that its few tokens can come in one piece, which has no decode rate
        for workload in tiny_workloads(*(name for name in BUILDERS if not name.startswith("decode"))):
            outcome = await run_workload(workload, driver)
            if outcome.valid is None:
                assert outcome.output_tokens == workload.output_tokens
            else:  # those end where they are complete
                assert outcome.valid == len(workload.calls)
            assert outcome.reuse.reached is not None
            if workload.concurrency == 1:
                assert outcome.reuse.reached == pytest.approx(outcome.reuse.ceiling)
    finally:
        await driver.close()


async def test_calls_beyond_the_limit_are_given_up_and_those_that_ended_count() -> None:
    class Slow:
        """Every other call never ends."""

        name = "slow"

        def __init__(self) -> None:
            self.calls = 0

        async def reset(self) -> None: ...

        async def close(self) -> None: ...

        async def complete(self, prompt: list[int], max_tokens: int, schema: str | None = None) -> Completion:
            self.calls += 1
            await asyncio.sleep(1000 if self.calls % 2 else 0.01)
            started = asyncio.get_running_loop().time()
            return Completion(tuple(prompt), (1,), started, started + 0.5, (Arrival(started + 0.1, 1),), 0, text="{}")

    calls = tuple(Call(((1, 2),), 4, schema="{}") for _ in range(6))
    outcome = await run_workload(Workload("w", "w", "seconds", calls, 6), Slow(), limit=0.2)
    assert (outcome.ended, outcome.valid, outcome.output_tokens) == (3, 3, 3)
    assert outcome.seconds >= 0.2
    assert outcome.call_seconds == pytest.approx(0.5)
    with pytest.raises(DriverError, match="none of 1 calls ended within 0"):
        await run_workload(Workload("w", "w", "seconds", calls[:1], 1), Slow(), limit=0.1)


async def test_a_refused_call_is_a_driver_error_in_the_engines_words() -> None:
    driver = EngineDriver("engine", Engine(model="tiny", threads=1))
    try:
        with pytest.raises(DriverError, match=r"engine: .*token id"):
            await driver.complete([10**7], 1)
    finally:
        await driver.close()


class Broken:
    """A system that is down."""

    name = "broken"

    async def complete(self, prompt: object, max_tokens: int, schema: str | None = None) -> Completion:
        raise DriverError("out of order")

    async def reset(self) -> None: ...

    async def close(self) -> None: ...


async def test_systems_take_turns_and_one_that_fails_doesnt_stop_the_others() -> None:
    driver = EngineDriver("engine", Engine(model="tiny", threads=1))
    output = io.StringIO()
    try:
        rounds = [tiny_workloads("distinct", seed=seed) for seed in (1, 2)]
        measured = await compare([driver, Broken()], rounds, Console(file=output), quiet_timeout=0)
    finally:
        await driver.close()
    assert [(m.run, m.system, m.error) for m in measured] == [
        (0, "engine", None), (0, "broken", "out of order"), (1, "engine", None), (1, "broken", "out of order"),
    ]  # fmt: skip
    lines = [line.split()[3] for line in output.getvalue().splitlines()]
    assert lines == ["engine", "broken", "broken", "engine"]


def test_overhead_counts_the_steps_it_was_asked_for() -> None:
    config = EngineConfig(model="tiny", threads=1, max_running=8)
    overhead = measure_overhead(config, running=8, prompt=16, steps=40)
    assert overhead.steady.steps == 40
    assert 0 < overhead.median <= overhead.worst
    assert overhead.steady.model > 0


def test_shapes_come_from_the_tensors() -> None:
    checkpoint = open_checkpoint(resolve("tiny"))
    config, shape = checkpoint.config, shape_of(checkpoint)
    attention = config.hidden_size * config.head_dim * (2 * config.heads + 2 * config.kv_heads)
    feed_forward = 3 * config.hidden_size * config.intermediate_size
    assert shape.layer_parameters == config.layers * (attention + feed_forward)
    assert shape.head_parameters == config.vocab_size * config.hidden_size
    assert shape.kv_bytes == 2 * config.layers * config.kv_heads * config.head_dim * 2


def test_arguments_name_what_is_known() -> None:
    chosen = parse(["--against", "palmette,vllm", "--workloads", "trees"])
    assert (chosen.against, chosen.workloads) == (["palmette", "vllm"], ["trees"])
    assert parse([]).workloads == list(BUILDERS)
    assert set(SYSTEMS) == {"palmette", "palmette-engine", "llama-cpp", "vllm", "openvino", "openvino-gguf"}
    with pytest.raises(SystemExit):
        parse(["--against", "nobody"])


def test_a_server_that_ends_or_never_answers_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    health = f"http://127.0.0.1:{free_port()}/"
    ends = [sys.executable, "-c", "import sys; sys.exit('no model')"]
    with (
        pytest.raises(PeerError, match=r"(?s)code 1.*no model"),
        server_process(ends, health=health, log=tmp_path / "ends.log"),
    ):
        pytest.fail("it was never ready")
    silent = [sys.executable, "-c", "import time; print('loading', flush=True); time.sleep(60)"]
    with (
        pytest.raises(PeerError, match=r"(?s)wasn't ready in 1 s.*loading"),
        server_process(silent, health=health, log=tmp_path / "silent.log", timeout=1),
    ):
        pytest.fail("it was never ready")
