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

from benchmarks.drivers.protocol import Completion, Driver, DriverError
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
    ended: int | None = None  # calls that ended within the limit, where not all did: what is told is of those
    call_seconds: float | None = None  # the median of a call that ended


async def run_workload(workload: Workload, driver: Driver, *, limit: float | None = None) -> Outcome:
    """Primes, runs, and measures. Raises what the driver raises: a failed call fails the run.

    `limit`: seconds after which the calls that are open are given up. Raises DriverError where none has ended by then.
    """
    await driver.reset()
    primed: list[Completion] = []
    for call in workload.prime:
        primed.append(await driver.complete(_prompt(call, []), call.max_tokens, call.schema))
    started = time.perf_counter()
    ended = await _run_calls(workload, driver, limit)
    seconds = time.perf_counter() - started
    if not ended:
        raise DriverError(f"{driver.name}: none of {len(workload.calls)} calls ended within {limit:g} s.")
    return summarise(workload, ended, primed, seconds)


async def _run_calls(workload: Workload, driver: Driver, limit: float | None) -> dict[int, Completion]:
    """Those that ended, by the number of their call."""
    places = asyncio.Semaphore(workload.concurrency)
    tasks: list[asyncio.Task[Completion]] = []

    async def one(call: Call) -> Completion:
        for need in call.needs:
            await tasks[need]
        async with places:
            return await driver.complete(_prompt(call, tasks), call.max_tokens, call.schema)

    try:
        async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
            for call in workload.calls:
                tasks.append(group.create_task(one(call)))
    except TimeoutError:
        pass  # those that ended count
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return {index: task.result() for index, task in enumerate(tasks) if not task.cancelled()}


def _prompt(call: Call, tasks: list[asyncio.Task[Completion]]) -> list[int]:
    ids: list[int] = []
    for part in call.parts:
        ids += tasks[part.call].result().tokens if isinstance(part, Reply) else part
    return ids


def summarise(workload: Workload, ended: dict[int, Completion], primed: list[Completion], seconds: float) -> Outcome:
    completions = list(ended.values())
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
        valid=_valid(workload, ended),
        ended=len(ended) if len(ended) < len(workload.calls) else None,
        call_seconds=statistics.median(completion.finished - completion.started for completion in completions),
    )


def _valid(workload: Workload, ended: dict[int, Completion]) -> int | None:
    judged = [
        is_instance(schema, completion.text)
        for index, completion in ended.items()
        if (schema := workload.calls[index].schema) is not None
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
