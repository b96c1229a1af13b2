"""How much of the possible reuse the tree and the scheduler reach, on eleven workloads: the share of the trie bound.

    python -m benchmarks.trie_bound [--data DIR] [--policy NAME] [--log FILE]

Closed loop: all programs are there at the start, and a program's next call arrives when those it needs have ended. The
real tree and scheduler run in virtual time on a simulated worker. The bound is what a pool without end reuses when the
calls come one at a time: every distinct token of the trie is computed once.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.programs import AUTHORS, Program, Programs, react_examples, write
from benchmarks.reuse import TokenTrie
from benchmarks.text import Encode, load_corpus
from benchmarks.workloads import Reply
from palmette.radix_cache.belady import belady_hits
from palmette.radix_cache.eviction import eviction_policy
from palmette.runtime.config import EngineConfig
from palmette.runtime.messages.tokens import pack
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.shape import PRESETS, model_shape
from palmette.runtime.simulation.run import Call, Served, Simulation
from palmette.runtime.step_time import StepTimeModel

VOCABULARY = 49_152
GOAL = 0.99
SLACK = 1.25  # Poisson arrivals are spread over so much more time than the closed loop takes
BLOCK = 4  # tokens that Belady's cache moves at once


@dataclass(frozen=True)
class Ready:
    """A call with its tokens: `output` is what it will draw."""

    name: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    needs: tuple[int, ...]  # indices into the program


@dataclass(frozen=True)
class Workload:
    """Programs with all tokens known. `distinct`: tokens of the trie of all that is computed.

    `reusable`: prompt tokens that needn't be computed when calls come one at a time and nothing is forgotten.
    """

    name: str
    title: str
    programs: tuple[tuple[Ready, ...], ...]
    prompt_tokens: int
    distinct: int
    reusable: int
    longest: int  # prompt and output of one call
    own: float  # tokens of a call, prompt and output, that no other program has: in the mean

    def pool(self, running: int) -> int:
        """A tenth of the distinct tokens; at least the longest call and what so many running ones hold alone."""
        return max(self.distinct // 10, self.longest + round((running - 1) * self.own))


def unfold(programs: Programs, seed: int) -> Workload:
    """Draws the outputs, and measures the trie."""
    draw = np.random.default_rng(seed)
    unfolded = tuple(_unfolded(program, f"{index}", draw) for index, program in enumerate(programs.programs))
    trie, prompts, reusable, calls, longest, distinct, own = TokenTrie(), 0, 0, 0, 0, 0, 0
    for program in unfolded:
        before = [trie.common_prefix(call.prompt) for call in program]  # shared with programs before this one
        for call, shared in zip(program, before, strict=True):
            computed = (*call.prompt, *call.output[:-1])
            prompts += len(call.prompt)
            reusable += min(len(call.prompt) - 1, trie.common_prefix(call.prompt))
            distinct += len(computed) - trie.common_prefix(computed)
            trie.insert(computed)
            calls += 1
            own += len(computed) - shared
            longest = max(longest, len(call.prompt) + len(call.output))
    return Workload(programs.name, programs.title, unfolded, prompts, distinct, reusable, longest, own / calls)


def _unfolded(program: Program, name: str, draw: np.random.Generator) -> tuple[Ready, ...]:
    ready: list[Ready] = []
    for index, call in enumerate(program):
        prompt: list[int] = []
        for part in call.parts:
            prompt += ready[part.call].output if isinstance(part, Reply) else part
        output = tuple(draw.integers(0, VOCABULARY, call.max_tokens).tolist())
        ready.append(Ready(f"{name}.{index}", tuple(prompt), output, call.needs))
    return tuple(ready)


@dataclass(frozen=True)
class Result:
    workload: Workload
    pool: int
    served: list[Served]
    retractions: int
    seconds: float  # virtual

    @property
    def cached(self) -> int:
        return sum(each.cached_tokens for each in self.served)

    @property
    def share(self) -> float:
        """Of the trie bound."""
        return self.cached / max(1, self.workload.reusable)


def run(
    workload: Workload, config: EngineConfig, *, starts: Sequence[float] | None = None, pool: int | None = None
) -> Result:
    """Program i starts at `starts[i]`, else at 0: closed loop."""
    pool_tokens = pool or workload.pool(config.max_running)
    simulation = Simulation(
        config,
        StepTimeModel(model_shape(PRESETS["llama-3.1-8b"]), DEVICES["h100"]),
        pages=-(-pool_tokens // config.page_size),
        vocabulary=VOCABULARY,
        context=workload.longest + 1,
        eviction=eviction_policy(config.eviction),
    )
    served: list[Served] = []
    waiting: dict[str, list[tuple[Ready, set[str]]]] = {}  # by a call's name: those that need it

    def enter(call: Ready, at: float) -> None:
        simulation.at(at, lambda: Call(name=call.name, prompt=pack(call.prompt), output=call.output))

    def ended(each: Served) -> None:
        assert not each.error, each.error
        served.append(each)
        for call, missing in waiting.pop(each.name, ()):
            missing.discard(each.name)
            if not missing:
                enter(call, each.finished)

    for index, program in enumerate(workload.programs):
        for call in program:
            missing = {program[need].name for need in call.needs}
            for need in missing:
                waiting.setdefault(need, []).append((call, missing))
            if not missing:
                enter(call, starts[index] if starts else 0.0)
    simulation.run(ended)
    assert not waiting
    return Result(workload, pool_tokens, served, simulation.core.counters().retractions, simulation.time.now)


def poisson(count: int, over: float, seed: int) -> list[float]:
    """`count` arrivals, `over` seconds in the mean."""
    draw = random.Random(seed)
    at, starts = 0.0, []
    for _ in range(count):
        at += draw.expovariate(count / over)
        starts.append(at)
    return starts


def belady_share(result: Result) -> float:
    """Of the trie bound, what a cache that knows the future reaches with calls in order of these arrivals."""
    calls = {call.name: call for program in result.workload.programs for call in program}
    ids: dict[tuple[int, ...], int] = {}
    requests = []
    for each in sorted(result.served, key=lambda each: each.arrival):
        call = calls[each.name]
        tokens = (*call.prompt, *call.output[:-1])
        blocks = (tokens[at : at + BLOCK] for at in range(0, len(tokens) - BLOCK + 1, BLOCK))
        requests.append([ids.setdefault(block, len(ids)) for block in blocks])
    return BLOCK * belady_hits(requests, result.pool // BLOCK) / max(1, result.workload.reusable)


def measure(
    workloads: Sequence[Workload], config: EngineConfig, console: Console, *, open_loop: bool
) -> Iterator[list[str]]:
    """A row of the table for each workload."""
    for workload in workloads:
        before = time.process_time()
        closed = run(workload, config)
        row = [
            workload.name,
            f"{len(workload.programs)} / {sum(map(len, workload.programs))}",
            f"{workload.prompt_tokens:,}",
            f"{workload.distinct:,}",
            f"{closed.pool:,}",
            f"{closed.pool / workload.distinct:.2f}",
            f"{workload.reusable / workload.prompt_tokens:.3f}",
            f"{closed.cached / workload.prompt_tokens:.3f}",
            f"{'' if closed.share >= GOAL else '! '}{closed.share:.4f}",
            f"{closed.retractions}",
        ]
        if open_loop:
            starts = poisson(len(workload.programs), SLACK * closed.seconds, seed=1)
            arriving = run(workload, config, starts=starts)
            row += [f"{arriving.share:.4f}", f"{belady_share(arriving):.4f}"]
        console.print(f"[dim]{workload.name}: {time.process_time() - before:.1f} CPU seconds[/dim]")
        yield row


COLUMNS = (
    "workload", "programs / calls", "prompt tokens", "distinct", "pool", "of distinct", "bound", "reached", "share",
    "retracted", "Poisson", "Belady",
)  # fmt: skip


def word_ids(text: str) -> list[int]:
    """Ids for words without a tokenizer's files: as many tokens as words, longer ones in two."""
    ids: list[int] = []
    for word in text.split():
        ids.append(_hashed(word[:6]))
        if len(word) > 6:
            ids.append(_hashed(word[6:]))
    return ids


def _hashed(word: str) -> int:
    value = 7
    for byte in word.encode():
        value = (value * 257 + byte) % 2_147_483_629
    return value % VOCABULARY


def default_encode() -> Encode:
    """The default model's tokenizer; fetches the model where it isn't here."""
    from palmette.runtime.checkpoint.resolve import resolve
    from palmette.runtime.config import DEFAULT_MODEL
    from palmette.runtime.text.load import load_tokenizer

    tokenizer = load_tokenizer(resolve(DEFAULT_MODEL))
    return lambda text: tokenizer.encode(text, special=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; the exit status is 1 where a workload misses the goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trie_bound", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="the data sets; without: text from the seed, and words as tokens")
    parser.add_argument("--workloads", default=",".join(AUTHORS))
    parser.add_argument("--policy", default=EngineConfig().policy)
    parser.add_argument("--eviction", default=EngineConfig().eviction)
    parser.add_argument("--page-size", type=int, default=EngineConfig().page_size)
    parser.add_argument("--max-running", type=int, default=16)
    parser.add_argument("--step-tokens", type=int, default=2048)
    parser.add_argument("--aging-beta", type=int, default=EngineConfig().aging_beta)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shrink", type=int, default=1, help="divide lengths and counts (a smoke test)")
    parser.add_argument("--no-poisson", action="store_true")
    parser.add_argument("--log", type=Path, help="write the table here too")
    given = parser.parse_args(arguments)
    encode = default_encode() if given.data is not None else word_ids
    corpus, react = load_corpus(given.data, given.seed), react_examples(given.data)
    config = EngineConfig(
        policy=given.policy,
        eviction=given.eviction,
        page_size=given.page_size,
        max_running=given.max_running,
        step_tokens=given.step_tokens,
        aging_beta=given.aging_beta,
    )
    workloads = [
        unfold(write(name, corpus, encode, given.seed, shrink=given.shrink, react=react), given.seed)
        for name in given.workloads.split(",")
    ]
    console = Console(width=150, highlight=False)
    title = (
        f"Share of the trie bound: {config.policy}, eviction {config.eviction}, pages of {config.page_size}, "
        f"{config.max_running} running, steps of {config.step_tokens}, aging behind {config.aging_beta:,} tokens; "
        f"{corpus.source}, seed {given.seed}"
    )
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for index, name in enumerate(COLUMNS if not given.no_poisson else COLUMNS[:-2]):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    rows = list(measure(workloads, config, console, open_loop=not given.no_poisson))
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if given.log is not None:
        with given.log.open("w", encoding="utf-8") as file:
            Console(file=file, width=150, highlight=False).print(table)
    return 1 if any(row[8].startswith("!") for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
