"""The workloads, as data: which calls, how long, with which replies in their prompts, how many at once.

A workload is a closed-loop program: a call starts when the calls it needs have answered and a place is free.
Prompts are token ids, so that lengths are exact on every system; every call runs greedily to `max_tokens` (no
stop at EOS), or with a schema to the end of its JSON value. Knows nothing of servers or clocks. Built by
run.py, executed by loop.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from benchmarks.text import Corpus, Encode, TokenSource

Headline = Literal["decode tokens/s", "prefill tokens/s", "seconds", "first token ms"]


@dataclass(frozen=True)
class Reply:
    """Stands in a prompt for the output tokens of an earlier call."""

    call: int


Part = tuple[int, ...] | Reply


@dataclass(frozen=True)
class Call:
    """One completion. `after`: calls that must have answered, besides those whose replies are in `parts`.

    `schema`: a JSON schema that the output is constrained to, which then ends where it is complete.
    """

    parts: tuple[Part, ...]
    max_tokens: int
    after: tuple[int, ...] = ()
    schema: str | None = None

    @property
    def needs(self) -> tuple[int, ...]:
        """Indices of the calls that must have answered before this one starts."""
        return tuple(sorted({part.call for part in self.parts if isinstance(part, Reply)} | set(self.after)))


@dataclass(frozen=True)
class Workload:
    """Calls in program order (a call needs earlier ones only), at most `concurrency` of them open at once."""

    name: str
    title: str
    headline: Headline
    calls: tuple[Call, ...]
    concurrency: int
    prime: tuple[Call, ...] = ()  # made before the clock starts, one at a time

    @property
    def prompt_lengths(self) -> list[int]:
        """Prompt tokens of each call."""
        outputs = [call.max_tokens for call in self.calls]
        return [
            sum(outputs[part.call] if isinstance(part, Reply) else len(part) for part in call.parts)
            for call in self.calls
        ]

    @property
    def output_tokens(self) -> int:
        return sum(call.max_tokens for call in self.calls)

    @property
    def decode_steps(self) -> int:
        """The fewest steps that can decode the outputs behind their first tokens, which come out of prefills."""
        return self._fewest([call.max_tokens - 1 for call in self.calls])

    @property
    def prefill_steps(self) -> int:
        """The fewest steps that can prefill the prompts, if a step took any number of tokens."""
        return self._fewest([1] * len(self.calls))

    def _fewest(self, steps: list[int]) -> int:
        """The longest chain of calls that need each other, or all their steps shared among the places."""
        finished: list[int] = []
        for call, own in zip(self.calls, steps, strict=True):
            finished.append(own + max((finished[need] for need in call.needs), default=0))
        return max(max(finished), -(-sum(steps) // self.concurrency))


@dataclass
class Maker:
    """Draws the tokens of one workload. `shrink` divides lengths and counts, for smoke tests.

    Another seed gives other tokens from the first ones on: what a server keeps of one run is no help in the
    next.
    """

    corpus: Corpus
    encode: Encode
    rng: random.Random
    shrink: int = 1
    problems: TokenSource = field(init=False)
    turns: TokenSource = field(init=False)
    questions: TokenSource = field(init=False)

    def __post_init__(self) -> None:
        self.problems = TokenSource(self.corpus.problems, self.encode, self.rng)
        self.turns = TokenSource(self.corpus.turns, self.encode, self.rng)
        self.questions = TokenSource(self.corpus.questions, self.encode, self.rng)

    def scaled(self, number: int) -> int:
        return max(2, number // self.shrink)

    def fresh(self, source: TokenSource, length: int) -> tuple[int, ...]:
        """A run that no other run of this or another seed begins like (a serial number comes first)."""
        return source.take(self.scaled(length), f"{self.rng.randrange(16**8):08x}: ")

    def run(self, source: TokenSource, length: int, opening: str = "") -> tuple[int, ...]:
        return source.take(self.scaled(length), opening)


def decode(make: Maker, context: int) -> Workload:
    call = Call((make.fresh(make.problems, context),), make.scaled(128))
    return Workload(f"decode-{context}", f"decode behind {context} tokens, one stream", "decode tokens/s", (call,), 1)


def prefill(make: Maker, length: int = 1024) -> Workload:
    call = Call((make.fresh(make.problems, length),), 1)
    return Workload(f"prefill-{length}", f"prefill of {length} tokens", "prefill tokens/s", (call,), 1)


def distinct(make: Maker) -> Workload:
    calls = [Call((make.fresh(make.problems, 256),), make.scaled(64)) for _ in range(make.scaled(32))]
    return Workload("distinct", "32 distinct requests, 256 in, 64 out", "seconds", tuple(calls), len(calls))


def shared(make: Maker) -> Workload:
    """All at once and unprimed: the first to arrive compute the prefix that the others want."""
    prefix = make.fresh(make.problems, 1000)
    calls = [Call((prefix, make.run(make.questions, 40)), make.scaled(16)) for _ in range(make.scaled(64))]
    return Workload("shared", "64 requests sharing 1,000 tokens, 40 own, 16 out", "seconds", tuple(calls), len(calls))


def chats(make: Maker) -> Workload:
    """Turn k + 1 holds all turns before it and their replies."""
    calls: list[Call] = []
    count = make.scaled(8)
    for _ in range(count):
        history: tuple[Part, ...] = ()
        for turn in range(4):
            user = make.fresh(make.turns, 100) if turn == 0 else make.run(make.turns, 100)
            calls.append(Call((*history, user), make.scaled(64)))
            history = (*history, user, Reply(len(calls) - 1))
    return Workload("chats", "8 chats of 4 turns, 100 in, 64 out each", "seconds", tuple(calls), count)


def trees(make: Maker) -> Workload:
    """Trees of thought: three rounds of three ideas; a round builds on one idea of the round before, an
    answer ends it.

    All trees share the instruction (480 tokens of examples); a question has 96, the words before an idea 8,
    an idea 48. Which idea is kept is drawn from the seed, so that the tokens don't depend on what a model
    would prefer.
    """
    instruction = make.fresh(make.problems, 480)
    calls: list[Call] = []
    count = make.scaled(8)
    for _ in range(count):
        path: tuple[Part, ...] = (instruction, make.run(make.problems, 96))
        previous: tuple[int, ...] = ()
        for _ in range(3):
            ideas: list[int] = []
            for number in range(3):
                opening = make.run(make.questions, 8, f"{number + 1}. Idea: ")
                calls.append(Call((*path, opening), make.scaled(48), after=previous))
                ideas.append(len(calls) - 1)
            kept = make.rng.choice(ideas)
            path = (*calls[kept].parts, Reply(kept))
            previous = tuple(ideas)
        calls.append(Call((*path, make.run(make.questions, 8, "So the answer: ")), make.scaled(48), after=previous))
    return Workload("trees", "8 trees of thought, 3 × 3 and an answer", "seconds", tuple(calls), 3 * count)


JSON_INSTRUCTION = """Write one JSON object about the text below, and nothing else. It has six fields:
"title" (a string of at most eight words), "topic" ("number", "place", "person", "work" or "other"),
"people" (a list of names), "year" (a whole number or null), "summary" (one sentence), "certain" (a boolean).
For example: {"title": "The old stone bridge", "topic": "place", "people": [], "year": 1734,
"summary": "A bridge of five arches crosses the river.", "certain": true}
"""


def objects(make: Maker) -> Workload:
    """Six-field JSON objects, asked for in the prompt. Lengths are fixed: 240 shared, 60 own, 96 out."""
    instruction = make.run(make.questions, 240, f"{make.rng.randrange(16**8):08x}: {JSON_INSTRUCTION}")
    calls = [
        Call((instruction, make.run(make.questions, 60, "\nText: ")), make.scaled(96)) for _ in range(make.scaled(16))
    ]
    return Workload("objects", "16 six-field JSON objects", "seconds", tuple(calls), len(calls))


# Lengths are bounded, so that a model that goes round in circles must end too.
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 60},
        "topic": {"enum": ["number", "place", "person", "work", "other"]},
        "people": {"type": "array", "items": {"type": "string", "maxLength": 24}, "maxItems": 3},
        "year": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2100}, {"type": "null"}]},
        "summary": {"type": "string", "minLength": 1, "maxLength": 160},
        "certain": {"type": "boolean"},
    },
    "required": ["title", "topic", "people", "year", "summary", "certain"],
    "additionalProperties": False,
}


def constrained_objects(make: Maker) -> Workload:
    """The objects again, each system holding its output to their schema. They end where they are complete."""
    schema = json.dumps(JSON_SCHEMA)
    unconstrained = objects(make)
    calls = [replace(call, max_tokens=256, schema=schema) for call in unconstrained.calls]
    return Workload("json", "16 six-field JSON objects, by schema", "seconds", tuple(calls), len(calls))


def cached_prefix(make: Maker) -> Workload:
    """First tokens behind a prefix that the system has seen: a call primes it, eight are measured in turn."""
    prefix = make.fresh(make.problems, 1000)

    def call() -> Call:
        return Call((prefix, make.run(make.questions, 16)), 1)

    prime = (call(),)
    return Workload(
        "cached-prefix", "first token behind a cached prefix of 1,000", "first token ms",
        tuple(call() for _ in range(8)), 1, prime,
    )  # fmt: skip


BUILDERS: dict[str, Callable[[Maker], Workload]] = {
    "decode-64": lambda make: decode(make, 64),
    "decode-1024": lambda make: decode(make, 1024),
    "prefill-1024": prefill,
    "distinct": distinct,
    "shared": shared,
    "chats": chats,
    "trees": trees,
    "objects": objects,
    "json": constrained_objects,
    "cached-prefix": cached_prefix,
}


def build(names: Iterable[str], corpus: Corpus, encode: Encode, seed: int, *, shrink: int = 1) -> list[Workload]:
    """The named workloads for one run.

    Each draws from its own generator, so that choosing some changes no other.
    """
    return [BUILDERS[name](Maker(corpus, encode, random.Random(f"{seed} {name}"), shrink)) for name in names]
