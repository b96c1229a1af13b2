"""How long running outputs wait while a long prompt is computed beside them: the real engine on the default model.

    python -m benchmarks.inter_token [--targets none,250,100,50] [--prompt TOKENS] [--prompts N] [--json FILE]

An engine for each target. Outputs run; then prompts come, one after another. The first prompt meets a step-time model
that has seen decode steps only, so it is told apart from the later ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from palmette.runtime.engine import Engine
from palmette.runtime.messages.sampling import SamplingParams

VOCABULARY = 40_000  # ids below it, at random: no prefix is shared
DECODES = 4
SETTLED = 24  # tokens that each output has before the first prompt comes


async def _decode(engine: Engine, prompt: list[int], times: list[float], stop: asyncio.Event) -> None:
    """Notes when tokens come, until `stop`."""
    params = SamplingParams(max_tokens=4000, ignore_eos=True, temperature=0)
    generation = engine.frontend.submit(prompt, params)
    async for _ in generation:
        times.append(time.perf_counter())
        if stop.is_set():
            break
    generation.close()


async def _gaps(engine: Engine, prompts: Sequence[list[int]], decodes: Sequence[list[int]]) -> list[dict[str, float]]:
    """For no prompt (decodes alone) and for each prompt: the gaps while it was computed, and seconds that it took."""
    stop, all_times = asyncio.Event(), [list[float]() for _ in decodes]
    tasks = [asyncio.create_task(_decode(engine, *each, stop)) for each in zip(decodes, all_times, strict=True)]
    while min(map(len, all_times)) < SETTLED:
        await asyncio.sleep(0.01)
    spans = []
    for prompt in prompts:
        start = time.perf_counter()
        async for _ in engine.frontend.submit(prompt, SamplingParams(max_tokens=1, temperature=0)):
            pass
        spans.append((start, time.perf_counter()))
        await asyncio.sleep(0.3)
    stop.set()
    await asyncio.gather(*tasks)
    rows = []
    for start, end in spans:
        gaps = sorted(
            later - earlier
            for times in all_times
            for earlier, later in pairwise(times)
            if later > start and earlier < end
        )
        rows.append({
            "p50 ms": 1e3 * gaps[len(gaps) // 2], "p99 ms": 1e3 * gaps[int(0.99 * len(gaps))],
            "max ms": 1e3 * gaps[-1], "prompt s": end - start,
        })  # fmt: skip
    return rows


def measure(target: float | None, prompt_tokens: int, prompts: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(VOCABULARY) for _ in range(count)]

    engine = Engine(itl_target_ms=target, step_tokens=2048, max_running=8, kv_tokens=(prompts + 2) * prompt_tokens)
    with engine:
        rows = engine.run(_gaps(engine, [tokens(prompt_tokens) for _ in range(prompts)], [tokens(32)] * DECODES))
    return [{"target ms": target or "none", "prompt": index + 1, **row} for index, row in enumerate(rows)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inter_token", description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", default="none,250,100,50")
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of each long prompt")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for target in given.targets.split(","):
        rows += measure(None if target == "none" else float(target), given.prompt, given.prompts)
    table = Table(title=f"{DECODES} outputs beside prompts of {given.prompt:,} tokens", box=None, title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*[f"{value:.1f}" if isinstance(value, float) else str(value) for value in row.values()])
    Console(width=100, highlight=False).print(table)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
