"""Requests that wait for their grammar or stop patterns: compiled in other threads, so that the scheduler's loop never
waits for one.

Knows the compiler and generations; nothing of queues or replies. Owned by the core.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from typing import Any, NamedTuple

from palmette.runtime.errors import GrammarError, InternalError, PalmetteError, Unsupported
from palmette.runtime.grammar.compile import Compilations, Compiler, Pending
from palmette.runtime.messages.grammar import GrammarSource
from palmette.runtime.scheduler.constrained import Constrained
from palmette.runtime.scheduler.sequence import Sequence

STOP = "stop_regex"  # the kind of a stop pattern's source
IDLE_SECONDS = 0.002  # how long an engine with nothing else to do waits for a compilation at a time


class Compiled(NamedTuple):
    """A sequence whose grammar is there, or why it can't be."""

    sequence: Sequence
    problem: PalmetteError | None


class Grammars:
    """`compiler`: None where this engine has none."""

    def __init__(self, compiler: Compiler | None) -> None:
        self._compiler = compiler
        self._waiting: dict[Sequence, tuple[Pending[Any], ...]] = {}
        self.seconds = 0.0  # that requests have waited for their grammars

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._waiting

    def begin(self, sequence: Sequence) -> bool:
        """Whether the sequence has all that it needs now; else `compiled` will tell. Raises Unsupported."""
        wanted = _wanted(sequence)
        if not wanted:
            return True
        compiler = self._compiler
        if compiler is None:
            raise Unsupported("This engine compiles no grammars.", param=wanted[0].kind)
        known = [_sort(compiler, each).cached(each) for each in wanted]
        if all(each is not None for each in known):
            self._give(sequence, known)
            return True
        self._waiting[sequence] = tuple(_sort(compiler, each).submit(each) for each in wanted)
        return False

    def compiled(self, *, idle: bool) -> list[Compiled]:
        """Those that needn't wait any more. `idle`: there is nothing else to do, so a moment may be waited."""
        ready = self._ready()
        if not ready and idle:
            time.sleep(IDLE_SECONDS)
            ready = self._ready()
        return [self._end(sequence) for sequence in ready]

    def forget(self, sequence: Sequence) -> None:
        self._waiting.pop(sequence, None)

    def _ready(self) -> list[Sequence]:
        return [sequence for sequence, pending in self._waiting.items() if all(each.ready for each in pending)]

    def _end(self, sequence: Sequence) -> Compiled:
        pending = self._waiting.pop(sequence)
        self.seconds += max(each.seconds for each in pending)
        try:
            self._give(sequence, [each.result() for each in pending])
        except GrammarError as problem:
            return Compiled(sequence, problem)
        except Exception as fault:  # of a builder: this request's, nobody else's
            return Compiled(sequence, InternalError(f"The grammar can't be compiled: {type(fault).__name__}: {fault}."))
        return Compiled(sequence, None)

    def _give(self, sequence: Sequence, compiled: Seq[Any]) -> None:
        """`compiled`: of what is wanted, in its order. Never asks the cache again, which may have given some up."""
        generation, compiler = sequence.generation, self._compiler
        assert generation is not None
        assert compiler is not None
        params = generation.params
        generation.stops.watch(list(compiled[: len(params.stop_regex)]))
        if params.constraint is not None:
            generation.constrained = Constrained(compiled[-1], params.constraint, compiler.space.vocabulary)


def _wanted(sequence: Sequence) -> list[GrammarSource]:
    """What has to be compiled before the sequence can run: stop patterns, then the grammar."""
    generation = sequence.generation
    if generation is None or generation.max_tokens == 0:
        return []
    wanted = [_stop(pattern) for pattern in generation.params.stop_regex]
    if generation.params.constraint is not None:
        wanted.append(generation.params.constraint.grammar)
    return wanted


def _stop(pattern: str) -> GrammarSource:
    return GrammarSource(kind=STOP, text=pattern)


def _sort(compiler: Compiler, source: GrammarSource) -> Compilations[Any]:
    return compiler.stops if source.kind == STOP else compiler
