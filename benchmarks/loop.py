"""Executes a workload on a driver, closed loop, and sums up what was measured.

The only place that turns times into figures. Called by run.py and tests.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from dataclasses import dataclass

from jsonschema import validators  # type: ignore[import-untyped]

from benchmarks.drivers.protocol import Completion, Driver
from benchmarks.reuse import Reuse, reuse
from benchmarks.workloads import Call, Headline, Reply, Workload


@dataclass(frozen=True)
class Outcome:
    """One run of one workload on one system. Times in seconds; `value` is the headline in its own unit."""

    workload: str
    headline: Headline
    value: float
    seconds: float
    first_token_median: float
    first_token_worst: float
    inter_token_median: float | None  # None: no call had a second token
    output_tokens: int
    output_rate: float  # output tokens a second of the whole run
    reuse: Reuse
    exact_ids: bool  # False: the server gave text only; later prompts hold its re-encoded text
    valid: int | None = None  # outputs that are instances of their call's schema; None: no call has one


async def run_workload(workload: Workload, driver: Driver) -> Outcome:
    """Primes, runs, and measures. Raises what the driver raises: a failed call fails the run."""
    await driver.reset()
    primed: list[Completion] = []
    for call in workload.prime:
        primed.append(await driver.complete(_prompt(call, []), call.max_tokens, call.schema))
    started = time.perf_counter()
    completions = await _run_calls(workload, driver)
    return summarise(workload, completions, primed, time.perf_counter() - started)


async def _run_calls(workload: Workload, driver: Driver) -> list[Completion]:
    places = asyncio.Semaphore(workload.concurrency)
    tasks: list[asyncio.Task[Completion]] = []

    async def one(call: Call) -> Completion:
        for need in call.needs:
            await tasks[need]
        async with places:
            return await driver.complete(_prompt(call, tasks), call.max_tokens, call.schema)

    try:
        async with asyncio.TaskGroup() as group:
            for call in workload.calls:
                tasks.append(group.create_task(one(call)))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _prompt(call: Call, tasks: list[asyncio.Task[Completion]]) -> list[int]:
    ids: list[int] = []
    for part in call.parts:
        ids += tasks[part.call].result().tokens if isinstance(part, Reply) else part
    return ids


def summarise(workload: Workload, completions: list[Completion], primed: list[Completion], seconds: float) -> Outcome:
    first_tokens = [completion.first_token_seconds for completion in completions]
    gaps = [gap for completion in completions for gap in completion.inter_token_seconds]
    output_tokens = sum(len(completion.tokens) for completion in completions)
    return Outcome(
        workload=workload.name,
        headline=workload.headline,
        value=_headline(workload.headline, completions, seconds),
        seconds=seconds,
        first_token_median=statistics.median(first_tokens),
        first_token_worst=max(first_tokens),
        inter_token_median=statistics.median(gaps) if gaps else None,
        output_tokens=output_tokens,
        output_rate=output_tokens / seconds,
        reuse=reuse(completions, primed),
        exact_ids=all(completion.exact_ids for completion in completions),
        valid=_valid(workload, completions),
    )


def _valid(workload: Workload, completions: list[Completion]) -> int | None:
    judged = [
        is_instance(call.schema, completion.text)
        for call, completion in zip(workload.calls, completions, strict=True)
        if call.schema is not None
    ]
    return sum(judged) if judged else None


def is_instance(schema: str, text: str) -> bool:
    """Whether `text` is a JSON instance of `schema`, by a judge that no system uses."""
    try:
        return bool(validators.validator_for(loaded := json.loads(schema))(loaded).is_valid(json.loads(text)))
    except ValueError:
        return False


def _headline(headline: Headline, completions: list[Completion], seconds: float) -> float:
    match headline:
        case "seconds":
            return seconds
        case "first token ms":
            return 1e3 * statistics.median(completion.first_token_seconds for completion in completions)
        case "decode tokens/s":
            return statistics.median(completion.decode_rate for completion in completions)
        case "prefill tokens/s":
            return statistics.median(
                len(completion.prompt) / completion.first_token_seconds for completion in completions
            )
