"""What a grammar costs an output, and what jumping ahead saves, on the engine in this process.

    python -m benchmarks.constrained

First: a batch of outputs of one length, free and under a regex and a JSON schema that go on for ever, without
jumping; what is told is the throughput of the constrained ones as a share of the free ones'. Then: the JSON objects of
the harness with jump-forward and without, on the same engine. Everything in turns within each run, on one process.
Against other systems: python -m benchmarks.run --workloads json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from benchmarks.drivers.engine import EngineDriver
from benchmarks.loop import Outcome, run_workload
from benchmarks.model import open_model
from benchmarks.quiet import machine, wait_until_quiet
from benchmarks.report import Summary, plot
from benchmarks.text import load_corpus
from benchmarks.workloads import Headline, build
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DEFAULT_MODEL, EngineConfig
from palmette.runtime.engine import Engine, build_core
from palmette.runtime.grammar.compile import TokenizerSpace
from palmette.runtime.grammar.compile import build as build_grammar
from palmette.runtime.grammar.protocol import Grammar, Limits
from palmette.runtime.messages.grammar import Constraint, GrammarSource, Jump, constraint
from palmette.runtime.messages.replies import Failed, Generated
from palmette.runtime.messages.requests import FlushCache, Generate
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.core import EngineCore
from palmette.runtime.text.load import load_tokenizer

REGEX = r"(?:(?:INFO|WARN|ERROR) [a-z]+(?: [a-z]+)*: [0-9]{1,5}\n)+"
SCHEMA = {
    "type": "array",
    "minItems": 100,
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string", "maxLength": 30},
            "colour": {"enum": ["red", "green", "blue"]},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["id", "name", "colour"],
        "additionalProperties": False,
    },
}
KINDS: dict[str, Callable[[], Constraint | None]] = {
    "free": lambda: None,
    "regex": lambda: constraint(regex=REGEX, jump="off"),
    "json schema": lambda: constraint(json_schema=SCHEMA, jump="off"),
}
JUMPS: tuple[Jump, ...] = ("bytes", "off")


@dataclass(frozen=True)
class Batch:
    """One batch. Seconds of the clock and of the engine's own counters."""

    kind: str
    run: int
    seconds: float
    tokens: int
    execute_seconds: float
    plan_seconds: float
    commit_seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def run_batch(core: EngineCore, kind: str, run: int, *, batch: int, tokens: int, prompt: int) -> Batch:
    """`batch` outputs of exactly `tokens` tokens, sampled at temperature 1."""
    chance = random.Random(run)
    core.submit(FlushCache(id="flush"))
    core.step()
    before = core.counters()
    started = time.perf_counter()
    for index in range(batch):
        params = SamplingParams(max_tokens=tokens, min_tokens=tokens, seed=run, constraint=KINDS[kind]())
        ids = chance.choices(range(1000, 20_000), k=prompt)
        core.submit(Generate(id=f"{kind} {run} {index}", prompt=pack(ids), params=params))
    while core.has_work:
        for reply in core.step():
            if isinstance(reply, Failed):
                raise RuntimeError(reply.error.message)
            if isinstance(reply, Generated) and reply.finish is not None:
                assert reply.finish.usage.completion_tokens == tokens, reply.finish
    seconds = time.perf_counter() - started
    after = core.counters()
    return Batch(
        kind,
        run,
        seconds,
        batch * tokens,
        after.execute_seconds - before.execute_seconds,
        after.plan_seconds - before.plan_seconds,
        after.commit_seconds - before.commit_seconds,
    )


def throughput(config: EngineConfig, runs: int, console: Console, *, batch: int, tokens: int) -> list[Batch]:
    """Run 0 warms up: it compiles the grammars and meets their states first."""
    core = build_core(config)
    assert isinstance(core, EngineCore)
    results: list[Batch] = []
    for run in range(runs + 1):
        kinds = list(KINDS)
        for kind in kinds[run % len(kinds) :] + kinds[: run % len(kinds)]:
            result = run_batch(core, kind, run, batch=batch, tokens=tokens, prompt=32)
            results.append(result)
            console.print(f"run {run}  {kind:12} {result.rate:7.1f} tokens/s", highlight=False)
    return results


async def objects(
    model: str | None, config: EngineConfig, runs: int, console: Console, *, concurrency: int | None
) -> list[tuple[Jump, Outcome]]:
    """The workload "json" with jump-forward and without. `concurrency`: None is all at once."""
    local = open_model(model)
    engine = Engine(config)
    drivers = {jump: EngineDriver(f"jump={jump}", engine, jump=jump) for jump in JUMPS}
    corpus = load_corpus(None)
    results: list[tuple[Jump, Outcome]] = []
    try:
        for run in range(runs + 1):  # the first warms up
            (workload,) = build(["json"], corpus, local.encode, run)
            workload = replace(workload, concurrency=concurrency or workload.concurrency)
            for jump in JUMPS if run % 2 else JUMPS[::-1]:
                outcome = await run_workload(workload, drivers[jump])
                console.print(
                    f"run {run}  jump={jump:6} {outcome.seconds:6.2f} s  {outcome.output_tokens:5} tokens, "
                    f"{outcome.valid} of {len(workload.calls)} valid",
                    highlight=False,
                )
                if run:
                    results.append((jump, outcome))
    finally:
        await asyncio.to_thread(engine.close)
    return results


@dataclass(frozen=True)
class Asked:
    """Of one output: tokens that were drawn, and those that were forced behind them.

    `held`: of the drawn, those whose bytes were all forced: held back, since what follows may merge with them.
    """

    drawn: int
    forced: int
    held: int

    @property
    def tokens(self) -> int:
        return self.drawn + self.forced


def asked(tokens: Sequence[int], grammar: Grammar, pieces: Sequence[bytes]) -> Asked:
    """Goes through an output that jump="bytes" wrote as the engine did: what it drew and what it didn't."""
    matcher = grammar.matcher()
    at = drawn = held = 0
    while at < len(tokens):
        run = matcher.forced()
        taken = min(len(run), len(tokens) - at)
        assert list(tokens[at : at + taken]) == run[:taken], "written otherwise than jumping does"
        for token in tokens[at : at + taken]:
            assert matcher.accept(token)
        at += taken
        if taken == 0:
            held += matcher.forced_bytes().startswith(pieces[tokens[at]])
            assert matcher.accept(tokens[at])
            drawn, at = drawn + 1, at + 1
    return Asked(drawn, len(tokens) - drawn, held)


async def count_asked(model: str | None, config: EngineConfig, runs: int) -> list[Asked]:
    """Of the objects of the workload "json", under jump="bytes"."""
    local, corpus = open_model(model), load_corpus(None)
    tokenizer = load_tokenizer(resolve(config.model))
    driver = EngineDriver("engine", Engine(config))
    found: list[Asked] = []
    try:
        for run in range(1, runs + 1):
            (workload,) = build(["json"], corpus, local.encode, run)
            prompts = [
                [token for part in call.parts if isinstance(part, tuple) for token in part] for call in workload.calls
            ]
            answers = await asyncio.gather(
                *(
                    driver.complete(p, call.max_tokens, call.schema)
                    for p, call in zip(prompts, workload.calls, strict=True)
                )
            )
            source = GrammarSource(kind="json_schema", text=workload.calls[0].schema or "")
            grammar = build_grammar(source, TokenizerSpace(tokenizer), Limits())
            found += [asked(answer.tokens, grammar, tokenizer.vocabulary.pieces) for answer in answers]
    finally:
        await driver.close()
    return found


def shares(batches: list[Batch], kind: str) -> list[float]:
    """Throughput of `kind` over the free one's, of each run but the first."""
    free = {batch.run: batch.rate for batch in batches if batch.kind == "free"}
    return [batch.rate / free[batch.run] for batch in batches if batch.kind == kind and batch.run]


def summaries(batches: list[Batch], objects_seconds: dict[Jump, list[float]]) -> list[Summary]:
    """For the plot. The first kind, and jumping, are what the others are compared with."""
    rates = {kind: [b.rate for b in batches if b.kind == kind and b.run] for kind in KINDS if batches}
    found = [_summary("16 outputs at once", kind, "decode tokens/s", values) for kind, values in rates.items()]
    return found + [
        _summary("16 JSON objects", f"jump={jump}", "seconds", values) for jump, values in objects_seconds.items()
    ]


def _summary(workload: str, system: str, headline: Headline, values: list[float]) -> Summary:
    median = statistics.median(values)
    return Summary(workload, system, headline, median, min(values), max(values), len(values), None, None, 0.0, 0)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.constrained", description=__doc__)
    parser.add_argument("--model", default=None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--part", choices=("throughput", "objects", "counts", "all"), default="all")
    parser.add_argument("--concurrency", type=int, default=None, help="objects at a time (default: all)")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    console = Console(width=120)
    load = wait_until_quiet(timeout=30)
    config = EngineConfig(model=arguments.model or DEFAULT_MODEL, threads=arguments.threads)
    told: dict[str, object] = {"machine": machine(), "load": asdict(load)}
    batches: list[Batch] = []
    seconds: dict[Jump, list[float]] = {}
    if arguments.part in ("counts", "all"):
        counted = asyncio.run(count_asked(arguments.model, config, arguments.runs))
        told["counts"] = [asdict(each) for each in counted]
        for name in ("tokens", "drawn", "forced", "held"):
            each = statistics.fmean(getattr(one, name) for one in counted)
            console.print(f"{name}: {each:.1f} an object", highlight=False)
    if arguments.part in ("throughput", "all"):
        batches = throughput(config, arguments.runs, console, batch=arguments.batch, tokens=arguments.tokens)
        told["throughput"] = [asdict(batch) for batch in batches]
        for kind in KINDS:
            console.print(f"{kind}: {spread(shares(batches, kind))} of the free throughput", highlight=False)
    if arguments.part in ("objects", "all"):
        outcomes = asyncio.run(
            objects(arguments.model, config, arguments.runs, console, concurrency=arguments.concurrency)
        )
        told["objects"] = [{"jump": jump, **asdict(outcome)} for jump, outcome in outcomes]
        seconds = {jump: [outcome.seconds for each, outcome in outcomes if each == jump] for jump in JUMPS}
        ratios = [off / jumped for jumped, off in zip(seconds["bytes"], seconds["off"], strict=True)]
        console.print(f"jump-forward: {spread(ratios)} times as fast as without", highlight=False)
    if arguments.out is not None and (batches or any(seconds.values())):
        plotted = plot(summaries(batches, seconds), title="What a grammar costs, and what jumping saves")
        arguments.out.with_suffix(".svg").write_text(plotted, encoding="utf-8")
        arguments.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
