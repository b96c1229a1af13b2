"""How long others wait for a token while a client asks for grammars that are large, slow or without end.

    python -m benchmarks.hostile_grammars [--only regex]

One free output is written by the engine in this process; meanwhile a request comes with one of the grammars below.
Told are the median and the longest gap between two tokens of the free output before and after that, and what became of
the request. Gaps are by the clock: on a busy machine compare them with those before.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from palmette.runtime.config import DEFAULT_MODEL, EngineConfig
from palmette.runtime.engine import build_core
from palmette.runtime.messages.grammar import Constraint, GrammarSource
from palmette.runtime.messages.replies import Failed, Generated
from palmette.runtime.messages.requests import Abort, Generate
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.core import EngineCore

TOKENS_BEFORE = 60
SECONDS_AFTER = 1.0
LONGEST = 40.0


def _ways(count: int) -> list[dict[str, Any]]:
    def inner(number: int) -> dict[str, Any]:
        choice = [{"type": "object", "properties": {f"x{number}": {"type": "string"}}, "required": [f"x{number}"]}]
        return {"type": "object", "properties": {"a": {"anyOf": [*choice, {"type": "integer"}]}}}

    return [
        {"type": "object", "properties": {f"k{number}": inner(number)}, "required": [f"k{number}"]}
        for number in range(count)
    ]


def _constraint(kind: str, source: Any) -> dict[str, Any]:
    text = source if isinstance(source, str) else json.dumps(source)
    return {"constraint": Constraint(grammar=GrammarSource(kind=kind, text=text))}


OPTIONAL = {
    "type": "object",
    "properties": {f"property_{number}": {"type": "string"} for number in range(1000)},
    "additionalProperties": False,
}
LOOKING = "(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])(?=.*[!-/])(?!.*word)(?!.*pass)[!-~]{8,200}"
HOSTILE: dict[str, dict[str, Any]] = {
    "lark, 30,000 texts": _constraint("lark", "start: " + " | ".join(f'"item{i} text"' for i in range(30_000))),
    "anyOf of 1,000 objects": _constraint("json_schema", {"anyOf": _ways(1000)}),
    "oneOf of 300 objects": _constraint("json_schema", {"oneOf": _ways(300)}),
    "1,000 optional properties": _constraint("json_schema", OPTIONAL),
    "enum of 20,000": _constraint("json_schema", {"enum": [f"value number {i}" for i in range(20_000)]}),
    "regex, too large": _constraint("regex", "(a|b)*a(a|b){16}"),
    "regex, look-ahead": _constraint("regex", LOOKING),
    "15 stop patterns": {"stop_regex": tuple(f"(a|b)*a(a|b){{18}}{i}" for i in range(15))},
}


@dataclass
class Gaps:
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    outcome: str = ""
    seconds: float | None = None


def measure(core: EngineCore, hostile: dict[str, Any]) -> Gaps:
    """One free output, and after its first tokens the hostile request beside it."""
    free = SamplingParams(max_tokens=6000, min_tokens=6000, ignore_eos=True, seed=1)
    prompt = random.Random(1).choices(range(1000, 20_000), k=32)
    core.submit(Generate(id="free", prompt=pack(prompt), params=free))
    gaps, last, asked = Gaps(), time.perf_counter(), 0.0
    while not asked or time.perf_counter() - asked < min(LONGEST, (gaps.seconds or LONGEST) + SECONDS_AFTER):
        if not asked and len(gaps.before) > TOKENS_BEFORE:
            asked = time.perf_counter()
            params = SamplingParams(max_tokens=12, seed=1, **hostile)
            core.submit(Generate(id="hostile", prompt=pack(prompt[:2]), params=params))
        for reply in core.step():
            now = time.perf_counter()
            if isinstance(reply, Generated) and reply.id == "free":
                (gaps.after if asked else gaps.before).append(now - last)
                last = now
            elif isinstance(reply, Failed) and reply.id == "hostile":
                gaps.outcome, gaps.seconds = reply.error.message, now - asked
            elif isinstance(reply, Generated) and reply.finish is not None:
                gaps.outcome, gaps.seconds = "an output", now - asked
    core.submit(Abort(id="free"))
    core.step()
    return gaps


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile_grammars", description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="those with this in their name")
    arguments = parser.parse_args()
    sys.setswitchinterval(2e-4)  # what an engine's process does at its start, this and the next lines
    core = build_core(EngineConfig(model=arguments.model, threads=arguments.threads))
    assert isinstance(core, EngineCore)
    core.upkeep()
    gc.collect()
    gc.freeze()
    print("| asked for | answered after | median before, after (ms) | longest before, after (ms) | with |")
    print("|---|--:|--:|--:|---|")
    for name, hostile in HOSTILE.items():
        if arguments.only not in name:
            continue
        gaps = measure(core, hostile)
        medians = [1e3 * statistics.median(each) for each in (gaps.before, gaps.after)]
        longest = [1e3 * max(each[1:]) for each in (gaps.before, gaps.after)]
        print(
            f"| {name} | {gaps.seconds or LONGEST:.1f} s | {medians[0]:.1f}, {medians[1]:.1f} "
            f"| {longest[0]:.0f}, {longest[1]:.0f} | {gaps.outcome[:90]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
