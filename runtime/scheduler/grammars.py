"""Requests that wait for their grammar: compiled in other threads, so that the scheduler's loop never waits for one.

Knows the compiler and generations; nothing of queues or replies. Owned by the core.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from palmette.runtime.errors import GrammarError, InternalError, PalmetteError, Unsupported
from palmette.runtime.grammar.compile import Compiler, Pending
from palmette.runtime.grammar.protocol import Grammar
from palmette.runtime.messages.grammar import Constraint
from palmette.runtime.scheduler.constrained import Constrained
from palmette.runtime.scheduler.sequence import Sequence

IDLE_SECONDS = 0.002  # how long an engine with nothing else to do waits for a compilation at a time


class Compiled(NamedTuple):
    """A sequence whose grammar is there, or why it can't be."""

    sequence: Sequence
    problem: PalmetteError | None


class Grammars:
    """`compiler`: None where this engine has none."""

    def __init__(self, compiler: Compiler | None) -> None:
        self._compiler = compiler
        self._waiting: dict[Sequence, Pending] = {}
        self.seconds = 0.0  # that requests have waited for their grammars

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._waiting

    def begin(self, sequence: Sequence, constraint: Constraint) -> bool:
        """Whether the sequence has its grammar now; else `compiled` will tell. Raises Unsupported, or GrammarError."""
        if self._compiler is None:
            raise Unsupported("This engine compiles no grammars.", param=constraint.grammar.kind)
        known = self._compiler.cached(constraint.grammar)
        if known is not None:
            self._give(sequence, known)
            return True
        self._waiting[sequence] = self._compiler.submit(constraint.grammar)
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
        return [sequence for sequence, pending in self._waiting.items() if pending.ready]

    def _end(self, sequence: Sequence) -> Compiled:
        pending = self._waiting.pop(sequence)
        self.seconds += pending.seconds
        try:
            self._give(sequence, pending.result())
        except GrammarError as problem:
            return Compiled(sequence, problem)
        except Exception as fault:  # of a builder: this request's, nobody else's
            return Compiled(sequence, InternalError(f"The grammar can't be compiled: {type(fault).__name__}: {fault}."))
        return Compiled(sequence, None)

    def _give(self, sequence: Sequence, grammar: Grammar) -> None:
        generation = sequence.generation
        assert generation is not None
        assert generation.params.constraint is not None
        assert self._compiler is not None
        generation.constrained = Constrained(
            grammar.matcher(), generation.params.constraint.jump, self._compiler.space.vocabulary.size
        )
