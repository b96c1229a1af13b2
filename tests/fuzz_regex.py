"""Random bytes and random patterns as regexes, for as long as one likes: an error or a grammar, within the time limit.

    PYTHONPATH=.src python -m tests.fuzz_regex --seconds 60 --seed 1

Each grammar's random walk must match by Python's `re`, and the memory must stay where it is. A failure prints the
pattern and ends with status 1.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import sys
import time
import warnings

import numpy as np

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.grammar import AutomatonGrammar
from palmette.runtime.grammar.compile import ByteSpace, Compiler, Grammar, GrammarSource, build_stop
from palmette.runtime.grammar.protocol import Limits, mask_words
from palmette.runtime.grammar.regex.stop_pattern import StopWatch

LIMIT = 5.0  # seconds for one pattern; the limits given are 2
PARTS = [
    "a", "b", "é", "😀", "1", " ", "-", ".", r"\d", r"\w", r"\S", "[a-c]", "[^b]", "[^\\W\\d]", "(", ")", "(?:",
    "(?=", "(?!", "|", "*", "+", "?", "{2}", "{0,3}", "{5,}", "{1,300}", "$", "^", "(?i)", "(?i:", "[", "]", "\\",
    "{", "}", r"\p{L}", ",",
]  # fmt: skip


def pattern(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.2:
        return chance.randbytes(chance.randint(0, 40)).decode("latin-1")
    if kind < 0.3:
        return chance.randbytes(chance.randint(0, 40)).decode(errors="replace")
    return "".join(chance.choices(PARTS, k=chance.randint(1, 14)))


def check(grammar: Grammar, text: str, chance: random.Random) -> None:
    """A random output under the grammar matches."""
    matcher, data = grammar.matcher(), b""
    mask = np.zeros(mask_words(ByteSpace.END + 1), np.uint32)
    for _ in range(100):
        matcher.fill_mask(mask)
        tokens = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        assert tokens, "a dead end"
        token = ByteSpace.END if ByteSpace.END in tokens and chance.random() < 0.3 else chance.choice(tokens)
        assert matcher.accept(token), "a token of the mask is refused"
        if token == ByteSpace.END:
            break
        data += bytes([token])
        if chance.random() < 0.05:
            ending = matcher.copy()
            way = ending.closing()
            assert way is not None or not isinstance(grammar, AutomatonGrammar), "no way to an end"
            assert all(map(ending.accept, way or ())), "the way to an end is refused"
            assert way is None or ending.may_end, "the way to an end doesn't end"
    else:
        return
    output = data.decode()
    assert grammar.accepts(output), output
    assert grammar.explain(output).matches, output
    try:
        judge = re.compile(text)
    except re.error:
        assert re.search(r"\\p|\\z|\(\?<", text), f"re refuses it; output {output!r}"
        return
    assert judge.fullmatch(output), output


def check_stop(text: str, chance: random.Random) -> None:
    """As a stop_regex it is an error, or finds what `re` finds first."""
    try:
        watch = StopWatch(build_stop(GrammarSource(kind="stop_regex", text=text), Limits(seconds=2.0)))
        judge = re.compile(text)
    except (GrammarError, re.error):
        return
    output = "".join(chance.choices("ab1 é-.c", k=20))
    found = watch.feed(bytearray(output.encode()), 0)
    first = next((end for end in range(21) if any(judge.fullmatch(output, at, end) for at in range(end))), None)
    assert (found is None) == (first is None), output
    if found is not None and first is not None:
        assert found[1] == len(output[:first].encode()), output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chance = random.Random(options.seed)
    compiler = Compiler(ByteSpace(), limits=Limits(seconds=2.0), cached=16)
    end, tried, taken, worst, memory = time.monotonic() + options.seconds, 0, 0, 0.0, 0
    while time.monotonic() < end:
        text = pattern(chance)
        start = time.process_time()
        try:
            try:
                grammar = compiler.compile(GrammarSource(kind="regex", text=text))
            except GrammarError:
                grammar = None
            spent = time.process_time() - start
            assert spent < LIMIT, f"{spent:.1f} s"
            if grammar is not None:
                taken += 1
                check(grammar, text, chance)
            if chance.random() < 0.1:
                check_stop(text, chance)
        except Exception as error:
            print(f"{text!r}: {type(error).__name__}: {error}")
            return 1
        worst, tried = max(worst, spent), tried + 1
        if tried == 2000:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024 if memory else 0.0
    print(f"{tried:,} patterns, {taken:,} taken; slowest {worst:.2f} s; {grown:.0f} MiB more after the first 2,000")
    return int(grown > 300)


if __name__ == "__main__":
    sys.exit(main())
