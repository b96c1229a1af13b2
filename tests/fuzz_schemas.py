"""Broken and mixed schemas and grammars for as long as wanted: an error or a grammar, in time; never a crash.

    python -m tests.fuzz_schemas [--seconds 60] [--seed 1]

What compiles also generates a text at random: a dead end or an invalid value fails.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "runtime" / "grammar"))

from real_schemas import REAL
from schema_cases import SPACE, allowed, generate
from wild_schemas import WILD

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import build as build_any
from palmette.runtime.grammar.protocol import GrammarSource, Limits, Matcher
from palmette.runtime.grammar.schema.compile import build
from palmette.runtime.grammar.schema.keyword_forms import FORMS

SECONDS = 3.0  # for one compilation
SCHEMAS = [schema for cases in REAL.values() for schema, _, _ in cases if len(json.dumps(schema)) < 4000]
SCHEMAS += [schema for cases in WILD.values() for schema, _ in cases]
GRAMMARS = ['root ::= "a" x+ | [^b]{1,3}\nx ::= "(" x ")" | ""', 'start: A (b | "c")*\nb: A+\nA: /[a-z]+/ & ~/x/']
NOISE = '{}[]":,0189.eE-abc\\^$*+?()|\0é\n~&/%<>'


def inner_parts(value: Any, found: list[Any]) -> list[Any]:
    """All lists and objects inside."""
    if isinstance(value, dict | list):
        found.append(value)
        for inner in value.values() if isinstance(value, dict) else value:
            inner_parts(inner, found)
    return found


def mixed(chance: random.Random) -> str:
    """A schema with some of its parts exchanged for parts of others."""
    schema = copy.deepcopy(chance.choice(SCHEMAS))
    for _ in range(chance.randint(1, 4)):
        into = chance.choice(inner_parts(schema, []))
        part = chance.choice(inner_parts(chance.choice(SCHEMAS), []))
        if isinstance(into, dict):
            into[chance.choice([*into, *FORMS])] = copy.deepcopy(part)
        elif into:
            into[chance.randrange(len(into))] = copy.deepcopy(part)
    return json.dumps(schema)


def broken(text: str, chance: random.Random) -> str:
    characters = list(text)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(characters)) if characters else 0
        if chance.random() < 0.3:
            del characters[at : at + chance.randint(1, 5)]
        else:
            characters[at : at + chance.randint(0, 1)] = chance.choices(NOISE, k=chance.randint(1, 3))
    return "".join(characters)


def close(matcher: Matcher, chance: random.Random) -> str | None:
    """A text that was begun at random and then closed; None where no way to an end was found."""
    begun: list[int] = []
    for _ in range(chance.randint(0, 12)):
        tokens = [token for token in allowed(matcher) if SPACE.vocabulary.pieces[token]]
        if not tokens:
            break
        begun.append(chance.choice(tokens))
        assert matcher.accept(begun[-1])
    way = matcher.closing()
    if way is None:
        return None
    assert all(map(matcher.accept, way)), "the way to an end is refused"
    assert matcher.may_end, "the way to an end doesn't end"
    return b"".join(SPACE.vocabulary.pieces[token] for token in (*begun, *way)).decode()


def one(kind: str, chance: random.Random) -> bool:
    """Whether a source of this kind compiled."""
    limits = Limits(seconds=SECONDS)
    try:
        if kind.startswith("schema"):
            text = mixed(chance) if kind == "schema mixed" else broken(json.dumps(chance.choice(SCHEMAS)), chance)
            grammar = build(GrammarSource(kind="json_schema", text=text), SPACE, limits)
            made = generate(grammar.matcher(), chance, 60)
            assert made is None or grammar.validate(json.loads(made)) is None, (text, made)
            closed = close(grammar.matcher(), chance)
            assert closed is None or grammar.validate(json.loads(closed)) is None, (text, closed)
        else:
            text = broken(chance.choice(GRAMMARS), chance)
            build_any(GrammarSource(kind=kind, text=text), SPACE, limits)
    except GrammarError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz schemas and grammars.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    compiled: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    slowest: Counter[str] = Counter()
    end = time.monotonic() + args.seconds
    memory = 0
    while time.monotonic() < end:
        kind = chance.choice(["schema mixed", "schema broken", "ebnf", "lark"])
        before = time.process_time()
        compiled[kind] += one(kind, chance)
        tried[kind] += 1
        slowest[kind] = max(slowest[kind], round((time.process_time() - before) * 1000))
        if tried.total() == 2000:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind in sorted(tried):
        print(f"{kind}: {tried[kind]:,} tried, {compiled[kind]:,} compiled, slowest {slowest[kind]:,} ms")
    at_end = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"memory: {memory / 1024:.0f} MiB after 2,000, {at_end / 1024:.0f} at the end")


if __name__ == "__main__":
    main()
