"""What each scheduling idea gives, in virtual time: the real core and tree, a worker that takes the predicted time.

    python -m benchmarks.scheduling [policies|aging|retraction|programs|chunking|tenants] [--requests N] [--json FILE]

`policies`: every policy at overload, with hit rate, throughput, TTFT and the share of all waiting that the slowest 5 %
bear. `aging`: that share and the throughput over α and β. `retraction`: throughput before, while and after a burst of
outputs that outgrow the pool. `programs`: agents beside single requests, by the room that a start leaves. `chunking`:
inter-token latency by target. `tenants`: what two tenants get, by policy.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console
from rich.table import Table

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.eviction import eviction_policy
from palmette.runtime.config import EngineConfig, Policy
from palmette.runtime.messages.replies import Generated, Usage
from palmette.runtime.messages.requests import Generate
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.shape import PRESETS, model_shape
from palmette.runtime.scheduler import starts
from palmette.runtime.scheduler.retraction import AdmissionHold
from palmette.runtime.simulation.core import SimulatedCore
from palmette.runtime.simulation.worker import SimulatedWorker, VirtualTime
from palmette.runtime.step_time import StepTimeModel

VOCABULARY = 32_000
PAGE = 16


@dataclass(frozen=True)
class Arrival:
    at: float
    request: Generate


@dataclass(frozen=True)
class Outcome:
    """`usages` by request; `gaps`: seconds between tokens of one output; `outputs`: (when, tokens) of each step."""

    usages: dict[str, Usage]
    gaps: list[float]
    outputs: list[tuple[float, int]]
    seconds: float
    retractions: int
    in_time: float

    @property
    def waits(self) -> list[float]:
        return sorted(usage.first_token_seconds for usage in self.usages.values())

    @property
    def hit_rate(self) -> float:
        return sum(u.cached_tokens for u in self.usages.values()) / sum(u.prompt_tokens for u in self.usages.values())

    @property
    def slowest_share(self) -> float:
        """Of all seconds to first tokens, those of the slowest 5 % of requests."""
        waits = self.waits
        return sum(waits[-max(1, len(waits) // 20) :]) / sum(waits)

    @property
    def per_second(self) -> float:
        """Requests served a second, to the end of the last."""
        return len(self.usages) / self.seconds

    def rate(self, start: float, end: float) -> float:
        """Output tokens a second between two times."""
        return sum(tokens for at, tokens in self.outputs if start < at <= end) / (end - start)

    def wait(self, share: float) -> float:
        return self.waits[min(len(self.usages) - 1, int(share * len(self.usages)))]


def new_model() -> StepTimeModel:
    """An 8B model on one H100 at 0.7 of its roofline."""
    return StepTimeModel(model_shape(PRESETS["llama-3.1-8b"]), DEVICES["h100"])


def drawn(seed: int, index: int) -> int:
    """The output token of that index."""
    return (seed * 7919 + index) % VOCABULARY


def nothing_more(name: str, at: float) -> Iterable[Arrival]:
    return ()


def serve(
    config: EngineConfig,
    arrivals: Iterable[Arrival],
    *,
    pool: int,
    then: Callable[[str, float], Iterable[Arrival]] = nothing_more,
) -> Outcome:
    """Everything that arrives, to the last token. `then`: what arrives once the named request ended, at that time."""
    time = VirtualTime()
    cache = RadixCache(pool // PAGE, PAGE, eviction=eviction_policy(config.eviction), clock=time)
    worker = SimulatedWorker(new_model(), time, drawn)
    core = SimulatedCore(config, worker, cache, vocabulary=VOCABULARY, context=32_768, time=time, step_time=new_model())
    usages: dict[str, Usage] = {}
    last: dict[str, float] = {}
    gaps: list[float] = []
    outputs: list[tuple[float, int]] = []
    todo = [(arrival.at, number, arrival.request) for number, arrival in enumerate(arrivals)]
    heapify(todo)
    numbers = count(len(todo))
    while todo or core.has_work:
        if todo and not core.has_work:
            time.now = max(time.now, todo[0][0])
        while todo and todo[0][0] <= time.now:
            core.submit(heappop(todo)[2])
        replies = core.step()
        for reply in replies:
            assert isinstance(reply, Generated), reply
            if reply.id in last:
                gaps.append(time.now - last[reply.id])
            last[reply.id] = time.now
            if reply.finish is not None:
                usages[reply.id] = reply.finish.usage
                for more in then(reply.id, time.now):
                    heappush(todo, (more.at, next(numbers), more.request))
        outputs.append((time.now, len(replies)))
    counters = core.counters()
    in_time = counters.in_time / counters.targeted if counters.targeted else 1.0
    return Outcome(usages, gaps, outputs, time.now, counters.retractions, in_time)


def request(name: str, prompt: Iterable[np.ndarray], outputs: int, seed: int, **options: Any) -> Generate:
    tokens = np.concatenate(list(prompt)).astype("<i4").tobytes()
    return Generate(
        id=name, prompt=tokens, params=SamplingParams(max_tokens=outputs, ignore_eos=True, seed=seed), **options
    )


def overload(count: int, rate: float, seed: int = 1, cold_share: float = 0.1) -> list[Arrival]:
    """Poisson arrivals that continue one of 40 prefixes of 2,000 tokens (Zipf), but for a tenth that are cold."""
    rng = np.random.default_rng(seed)
    stems = [rng.integers(0, VOCABULARY, 2000) for _ in range(40)]
    popular = 1 / np.arange(1, 41)
    arrivals, at = [], 0.0
    for index in range(count):
        at += rng.exponential(1 / rate)
        own = rng.integers(0, VOCABULARY, int(rng.integers(50, 500)))
        cold = rng.random() < cold_share
        stem = (
            rng.integers(0, VOCABULARY, int(rng.integers(1000, 4000)))
            if cold
            else stems[rng.choice(40, p=popular / popular.sum())]
        )
        arrivals.append(Arrival(at, request(
            f"{'cold' if cold else 'warm'}{index}", (stem, own), int(rng.integers(16, 128)), index,
            tenant="ab"[index % 2], ttft_target=float(rng.choice([2.0, 10.0, 40.0])), priority=0,
        )))  # fmt: skip
    return arrivals


CONFIG = EngineConfig(page_size=PAGE, max_running=64, step_tokens=2048, itl_target_ms=50.0)
POOL = 96_000
ALPHAS = (0.0, 0.25, 0.5, 1.0, 2.0)
BETAS = (0, 16_384, 65_536)
RATE = 60.0  # requests a second: half as many again as the best policy serves


def measure_policies(count: int) -> list[dict[str, Any]]:
    arrivals = overload(count, RATE)
    plain = replace_config(CONFIG, aging_alpha=0.0, aging_beta=10**15)
    runs: list[tuple[str, EngineConfig]] = [("longest_prefix, not aged", plain)]
    runs += [(policy, replace_config(CONFIG, policy=policy)) for policy in get_args(Policy)]
    rows: list[dict[str, Any]] = []
    for name, config in runs:
        outcome = serve(config, arrivals, pool=POOL)
        rows.append({"policy": name, **summary(outcome)})
    best = rows[0]["requests/s"]
    return [{**row, "of plain": row["requests/s"] / best} for row in rows]


def summary(outcome: Outcome) -> dict[str, float]:
    return {
        "requests/s": outcome.per_second,
        "hit rate": outcome.hit_rate,
        "TTFT mean": statistics.fmean(outcome.waits),
        "p50": outcome.wait(0.5),
        "p99": outcome.wait(0.99),
        "max": outcome.waits[-1],
        "slowest 5 %": outcome.slowest_share,
        "in time": outcome.in_time,
    }


def measure_aging(count: int) -> list[dict[str, Any]]:
    arrivals = overload(count, RATE)
    rows: list[dict[str, Any]] = []
    plain = serve(replace_config(CONFIG, aging_alpha=0.0, aging_beta=10**15), arrivals, pool=POOL)
    for alpha in ALPHAS:
        for beta in BETAS:
            outcome = serve(replace_config(CONFIG, aging_alpha=alpha, aging_beta=beta), arrivals, pool=POOL)
            rows.append({
                "α": alpha, "β": beta, "slowest 5 %": outcome.slowest_share, "max TTFT": outcome.waits[-1],
                "TTFT mean": statistics.fmean(outcome.waits), "of plain": outcome.per_second / plain.per_second,
            })  # fmt: skip
    rows.append({
        "α": "not aged", "β": "", "slowest 5 %": plain.slowest_share, "max TTFT": plain.waits[-1],
        "TTFT mean": statistics.fmean(plain.waits), "of plain": 1.0,
    })  # fmt: skip
    return rows


def replace_config(config: EngineConfig, **changes: Any) -> EngineConfig:
    return EngineConfig(**{name: getattr(config, name) for name in config.__struct_fields__} | changes)


STEADY = 48  # clients, each with one request at a time
BURST = 48  # requests that outgrow the pool
BURST_AT = 20.0  # seconds


def bursting(steady_outputs: int) -> tuple[list[Arrival], Callable[[str, float], Iterable[Arrival]], dict[str, float]]:
    """Clients that send their next request when the last one ended; amid that a burst of long outputs. It ends as long
    after the burst's last output as it ran before the burst. The dictionary comes to hold when the burst ended."""
    rng = np.random.default_rng(2)
    numbers = count()
    left = {f"burst{index}" for index in range(BURST)}
    ended: dict[str, float] = {}

    def steady(at: float) -> Arrival:
        number = next(numbers)
        outputs = int(rng.integers(steady_outputs // 2, 3 * steady_outputs // 2))
        return Arrival(at, request(f"steady{number}", (rng.integers(0, VOCABULARY, 200),), outputs, number))

    def then(name: str, at: float) -> Iterable[Arrival]:
        if name in left:
            left.remove(name)
            if not left:
                ended["burst"] = at
            return ()
        return () if not left and at > ended["burst"] + BURST_AT else (steady(at),)

    arrivals = [steady(0.0) for _ in range(STEADY)]
    for index in range(BURST):
        prompt = rng.integers(0, VOCABULARY, 200)
        arrivals.append(Arrival(BURST_AT, request(f"burst{index}", (prompt,), 1200, 100_000 + index)))
    return arrivals, then, ended


def measure_retraction(requests: int) -> list[dict[str, Any]]:
    """Output tokens a second before, while and after a burst of outputs that the pool can't hold together; with the
    hold and without. The first quarter of both steady spans is left out: they begin and end in step."""
    rows = []
    for policy, outputs in (("first_come", 100), ("longest_prefix", 100), ("longest_prefix", 250)):
        for held in (True, False):
            arrivals, then, ended = bursting(outputs)
            look = AdmissionHold.look
            if not held:
                AdmissionHold.look = _never_hold  # type: ignore[method-assign, assignment]
            outcome = serve(replace_config(CONFIG, policy=policy), arrivals, pool=24_000, then=then)
            AdmissionHold.look = look  # type: ignore[method-assign]
            before = outcome.rate(0.25 * BURST_AT, BURST_AT)
            after = outcome.rate(ended["burst"] + 0.25 * BURST_AT, ended["burst"] + BURST_AT)
            burst = [usage for name, usage in outcome.usages.items() if name.startswith("burst")]
            computed = sum(usage.computed_tokens for usage in outcome.usages.values())
            prompts = sum(usage.prompt_tokens for usage in outcome.usages.values())
            rows.append({
                "policy": policy, "outputs": outputs, "hold": "⅛ of the pool" if held else "none",
                "before": before, "burst": outcome.rate(BURST_AT, ended["burst"]), "after": after,
                "after / before": after / before, "burst s": ended["burst"] - BURST_AT,
                "burst TTFT": statistics.fmean(usage.first_token_seconds for usage in burst),
                "retractions": outcome.retractions, "recomputed": computed - prompts,
            })  # fmt: skip
    return rows


def _never_hold(hold: AdmissionHold, room: int, running: int) -> None:
    hold.active = False


AGENTS, AGENT_TURNS, SINGLES = 48, 25, 300


def agents(seed: int = 11) -> tuple[list[Arrival], Callable[[str, float], Iterable[Arrival]]]:
    """Agents of many short turns behind 1,500 tokens that they share, 0.3 s for a tool between turns, all there from
    the start; and ten requests a second that share nothing."""
    rng = np.random.default_rng(seed)
    shots = rng.integers(0, VOCABULARY, 1500)
    prompts: dict[str, np.ndarray] = {}

    def turn(agent: int, number: int, prompt: np.ndarray, at: float) -> Arrival:
        name = f"agent.{agent}.{number}"
        prompts[name] = prompt
        return Arrival(at, request(name, (prompt,), 60, 1000 * agent + number))

    def then(name: str, at: float) -> Iterable[Arrival]:
        if not name.startswith("agent"):
            return ()
        agent, number = map(int, name.split(".")[1:])
        answer = [drawn(1000 * agent + number, index) for index in range(60)]
        prompt = np.concatenate([prompts.pop(name), answer, rng.integers(0, VOCABULARY, 110)])
        return (turn(agent, number + 1, prompt, at + 0.3),) if number + 1 < AGENT_TURNS else ()

    arrivals = [
        turn(agent, 0, np.concatenate([shots, rng.integers(0, VOCABULARY, 50)]), 0.01 * agent)
        for agent in range(AGENTS)
    ]
    at = 0.0
    for index in range(SINGLES):
        at += rng.exponential(1 / 10)
        prompt = rng.integers(0, VOCABULARY, int(rng.integers(500, 3000)))
        arrivals.append(Arrival(at, request(f"single{index}", (prompt,), 60, 10**6 + index)))
    return arrivals, then


def measure_programs(requests: int) -> list[dict[str, Any]]:
    """Agents beside single requests, by the turns that a start leaves room for."""
    rows = []
    for turns in (0.0, 1.0, 2.0, 4.0):
        arrivals, then = agents()
        usual, starts.TURNS = starts.TURNS, turns
        outcome = serve(CONFIG, arrivals, pool=POOL, then=then)
        starts.TURNS = usual
        single = [u.first_token_seconds for name, u in outcome.usages.items() if name.startswith("single")]
        rows.append({
            "turns": turns, "requests/s": outcome.per_second, "hit rate": outcome.hit_rate,
            "TTFT mean": statistics.fmean(outcome.waits), "of singles": statistics.fmean(single), "max": max(single),
            "slowest 5 %": outcome.slowest_share,
        })  # fmt: skip
    return rows


def measure_chunking(count: int) -> list[dict[str, Any]]:
    """Decodes while prompts of 8,000 tokens come in between."""
    rng = np.random.default_rng(3)
    arrivals = [
        Arrival(0.02 * index, request(f"d{index}", (rng.integers(0, VOCABULARY, 100),), 400, index))
        for index in range(max(8, count // 20))
    ]
    arrivals += [
        Arrival(1.0 + 0.5 * index, request(f"p{index}", (rng.integers(0, VOCABULARY, 8000),), 2, 1000 + index))
        for index in range(12)
    ]
    rows = []
    for target in (None, 200.0, 100.0, 50.0, 30.0):
        config = replace_config(CONFIG, itl_target_ms=target, step_tokens=8192)
        outcome = serve(config, arrivals, pool=400_000)
        gaps = sorted(outcome.gaps)
        long = [usage.first_token_seconds for name, usage in outcome.usages.items() if name.startswith("p")]
        rows.append({
            "target ms": target or "none", "gap p50 ms": 1e3 * gaps[len(gaps) // 2],
            "p99 ms": 1e3 * gaps[int(0.99 * len(gaps))], "max ms": 1e3 * gaps[-1],
            "TTFT of 8,000 tokens": statistics.fmean(long), "seconds": outcome.seconds,
        })  # fmt: skip
    return rows


def measure_tenants(count: int) -> list[dict[str, Any]]:
    """One tenant sends nine of ten requests; what the other waits."""
    arrivals = [
        replace(each, request=_of(each.request, "few" if index % 10 == 0 else "many"))
        for index, each in enumerate(overload(count, RATE))
    ]
    few = {each.request.id for each in arrivals if each.request.tenant == "few"}
    rows = []
    for policy in ("first_come", "longest_prefix", "fair_share"):
        outcome = serve(replace_config(CONFIG, policy=policy), arrivals, pool=POOL)
        waits = {name: usage.first_token_seconds for name, usage in outcome.usages.items()}
        rows.append({
            "policy": policy, "few: mean TTFT": statistics.fmean(waits[name] for name in few),
            "many: mean TTFT": statistics.fmean(wait for name, wait in waits.items() if name not in few),
            "requests/s": outcome.per_second,
        })  # fmt: skip
    return rows


def _of(request: Generate, tenant: str) -> Generate:
    return Generate(**{name: getattr(request, name) for name in request.__struct_fields__} | {"tenant": tenant})


MEASURES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "policies": measure_policies,
    "aging": measure_aging,
    "retraction": measure_retraction,
    "programs": measure_programs,
    "chunking": measure_chunking,
    "tenants": measure_tenants,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*MEASURES, []], default=[])
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console(width=180)
    results = {}
    for name in arguments.what or MEASURES:
        rows = results[name] = MEASURES[name](arguments.requests)
        table = Table(title=name)
        for column in rows[0]:
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(*[f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()])
        console.print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
