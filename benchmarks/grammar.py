"""What constraining an output costs: compilation, masks, forced tokens of regexes.

    python -m benchmarks.grammar --model smollm2-135m

Times are CPU seconds of this process, best of several where noted, so a busy machine blurs them little.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.grammar_patterns import PATTERNS
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.grammar.automaton import alphabet as automaton_alphabet
from palmette.runtime.grammar.automaton.automaton import Automaton
from palmette.runtime.grammar.automaton.grammar import AutomatonGrammar
from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.compile import Compiler, GrammarSource, TokenizerSpace
from palmette.runtime.grammar.protocol import mask_words
from palmette.runtime.grammar.regex import charset as regex_charset
from palmette.runtime.grammar.trie import vocabulary_trie
from palmette.runtime.text.load import load_tokenizer

TEXTS = 20  # a pattern, for the share of texts that jumping changes
MAX_CHARACTERS = 120
PLAIN = b"abcdefghijklmnopqrstuvwxyz    eeettaaoinshr0123456789.ABCDE"


@dataclass(frozen=True)
class Row:
    """One pattern. Milliseconds, but look-up in microseconds."""

    name: str
    states: int
    compile_cold: float  # with the tables of Unicode classes not made yet
    compile_warm: float
    again: float
    first_mask: float  # the slowest of the states that sampled texts pass
    look_up: float  # median
    accept: float  # microseconds a token, mean
    jump: float  # forced tokens of a state, the first time, the slowest
    forced: float  # share of the sampled texts' tokens that is forced
    differ: int  # sampled texts whose tokens jumping changes


def cpu(work: Callable[[], object], times: int = 1) -> float:
    """The least CPU seconds of several tries."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def forget_tables() -> None:
    for cached in (
        regex_charset.escape_class, regex_charset._case_tables, regex_charset._categories, automaton_alphabet._alphabet
    ):  # fmt: skip
        cached.cache_clear()


def distances(automaton: Automaton) -> list[int]:
    """Characters to the nearest end, per state."""
    delta, count = automaton.dfa.delta, len(automaton.dfa.delta)
    far = np.where(automaton.dfa.finals, 0, count)
    for _ in range(count):
        nearer = np.minimum(far, 1 + np.where(delta, far[delta], count).min(axis=1))
        if (nearer == far).all():
            break
        far = nearer
    result: list[int] = far.tolist()
    return result


def sample(automaton: Automaton, far: list[int], chance: random.Random) -> str:
    """A text of the language: plain letters where they may stand, not much longer than MAX_CHARACTERS."""
    at, data = automaton.start, bytearray()
    while True:
        after = {byte: automaton.walk(at, bytes([byte])) for byte in automaton.ways(at)}
        ends = automaton.final(at)
        if not after or (ends and (chance.random() < 0.1 or len(data) > MAX_CHARACTERS)):
            return data.decode()
        ways = [byte for byte in after if byte < 0x80] or list(after)
        usual = [byte for byte in PLAIN if byte in after]
        if len(data) > MAX_CHARACTERS:
            nearest = min(far[after[byte].state] for byte in ways)  # type: ignore[union-attr]
            ways = [byte for byte in ways if far[after[byte].state] == nearest]  # type: ignore[union-attr]
        elif usual and chance.random() < 0.8:
            ways = usual
        byte = chance.choice(ways)
        at = after[byte]  # type: ignore[assignment]
        data.append(byte)


def follow(grammar: AutomatonGrammar, tokens: list[int]) -> tuple[int, bool]:
    """How many of a text's canonical tokens are forced, and whether jumping gives others."""
    matcher, at, forced = grammar.matcher(), 0, 0
    while at < len(tokens):
        jump = matcher.forced()
        if jump:
            if tokens[at : at + len(jump)] != jump:
                return forced, True
            forced += len(jump)
        for token in jump or tokens[at : at + 1]:
            assert matcher.accept(token)
        at += len(jump) or 1
    return forced, False


def measure(name: str, pattern: str, space: TokenizerSpace) -> Row:
    source = GrammarSource(kind="regex", text=pattern)
    forget_tables()
    cold = cpu(lambda: Compiler(space).compile(source))
    warm = cpu(lambda: Compiler(space).compile(source), 3)
    compiler = Compiler(space)
    grammar = compiler.compile(source)
    assert isinstance(grammar, AutomatonGrammar), name
    again = cpu(lambda: [compiler.compile(source) for _ in range(100)], 3) / 100
    chance, far = random.Random(0), distances(grammar.automaton)
    mask = np.zeros(mask_words(space.vocabulary.size), np.uint32)
    firsts, look_ups, jumps, accepts, forced, total, differ = [0.0], [], [0.0], 0.0, 0, 0, 0
    for _ in range(TEXTS):
        tokens = space.encode(sample(grammar.automaton, far, chance))
        matcher = grammar.matcher()
        for token in tokens:
            before = grammar.masks.computed
            spent = cpu(lambda m=matcher: m.fill_mask(mask))  # type: ignore[misc]
            if grammar.masks.computed > before:
                firsts.append(spent)
            else:
                look_ups.append(cpu(lambda m=matcher: [m.fill_mask(mask) for _ in range(50)]) / 50)  # type: ignore[misc]
            assert mask[token // 32] >> (token % 32) & 1
            jumps.append(cpu(matcher.forced))
            assert matcher.accept(token)
        matcher = grammar.matcher()
        accepts += cpu(lambda m=matcher, t=tokens: all(map(m.accept, t)))  # type: ignore[misc]
        known, other = follow(grammar, tokens)
        forced, total, differ = forced + known, total + len(tokens), differ + other
    return Row(
        name=name,
        states=grammar.automaton.states,
        compile_cold=1e3 * cold,
        compile_warm=1e3 * warm,
        again=1e3 * again,
        first_mask=1e3 * max(firsts),
        look_up=1e6 * statistics.median(look_ups or [0.0]),
        accept=1e6 * accepts / max(1, total),
        jump=1e3 * max(jumps),
        forced=forced / max(1, total),
        differ=differ,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    tokenizer = load_tokenizer(resolve(options.model))
    space = TokenizerSpace(tokenizer)
    built = cpu(lambda: vocabulary_trie(tokenizer.vocabulary), 3)
    masks_of(space)
    rows = [measure(name, pattern, space) for name, pattern in PATTERNS.items()]
    table = Table("pattern", "states", "cold", "warm", "again", "first mask", "look-up", "forced", "differ")
    for row in rows:
        times = (f"{value:.2f} ms" for value in (row.compile_cold, row.compile_warm, row.again, row.first_mask))
        shares = (f"{row.look_up:.2f} µs", f"{row.forced:.0%}", f"{row.differ}/{TEXTS}")
        table.add_row(row.name, f"{row.states:,}", *times, *shares)
    console = Console(width=150)
    console.print(table)
    console.print(f"{len(rows)} patterns over {tokenizer.vocabulary.size:,} tokens; trie built in {1e3 * built:.0f} ms")
    for label, values in (
        ("compile, tables cold (ms)", [row.compile_cold for row in rows]),
        ("compile, tables warm (ms)", [row.compile_warm for row in rows]),
        ("compile again (ms)", [row.again for row in rows]),
        ("first mask of a state, worst (ms)", [row.first_mask for row in rows]),
        ("mask look-up (µs)", [row.look_up for row in rows]),
        ("accept a token (µs)", [row.accept for row in rows]),
        ("forced tokens of a state, first time, worst (ms)", [row.jump for row in rows]),
    ):
        console.print(f"{label}: median {statistics.median(values):.3f}, highest {max(values):.3f}")
    changed, texts = sum(row.differ for row in rows), TEXTS * len(rows)
    console.print(f'texts whose tokens jump="bytes" changes: {changed} of {texts} ({changed / texts:.1%})')


if __name__ == "__main__":
    main()
