"""Requests that wait for their grammar or stop patterns: compiled in other threads, so that the scheduler's loop never
waits for one.

Knows the compiler and generations; nothing of queues or replies. Owned by the core.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from typing import Any, NamedTuple

from palmette.runtime.errors import GrammarError, InternalError, PalmetteError, Unsupported
from palmette.runtime.grammar.compile import Compilations, Compiler, Pending, Share
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
        share = Share()
        self._waiting[sequence] = tuple(_sort(compiler, each).submit(each, share) for each in wanted)
        return False

    def make_ready(self) -> None:
        """While nothing runs: what the first grammar would keep others waiting for."""
        if self._compiler is not None:
            self._compiler.make_ready()

    def close(self) -> None:
        """Nobody waits any more: what is being compiled is given up, wherever it is."""
        if self._compiler is not None:
            self._compiler.close()

    def compiled(self, *, idle: bool) -> list[Compiled]:
        """Those that needn't wait any more. `idle`: there is nothing else to do, so a moment may be waited."""
        ready = self._ready()
        if not ready and idle:
            time.sleep(IDLE_SECONDS)
            ready = self._ready()
        return [self._end(sequence) for sequence in ready]

    def forget(self, sequence: Sequence) -> None:
        for each in self._waiting.pop(sequence, ()):
            each.leave()

    def _ready(self) -> list[Sequence]:
        return [
            sequence
            for sequence, pending in self._waiting.items()
            if all(each.ready for each in pending) or self._overdue(pending) or _refused(pending)
        ]

    def _overdue(self, pending: Seq[Pending[Any]]) -> bool:
        """All that the request asks for has had its time, added up."""
        assert self._compiler is not None
        return len(pending) > 1 and sum([each.seconds for each in pending]) > self._compiler.limits.seconds

    def _end(self, sequence: Sequence) -> Compiled:
        pending = self._waiting.pop(sequence)
        self.seconds += max(each.seconds for each in pending)
        try:
            refused = _refused(pending)
            if refused is not None:
                refused.result()
            if not all(each.ready for each in pending):
                raise _too_slow(pending, self._compiler)
            self._give(sequence, [each.result() for each in pending])
        except GrammarError as problem:
            return Compiled(sequence, _placed(problem, sequence))
        except Exception as fault:  # of a builder: this request's, nobody else's
            return Compiled(sequence, InternalError(f"The grammar can't be compiled: {type(fault).__name__}: {fault}."))
        finally:
            for each in pending:
                each.leave()
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


def _refused(pending: Seq[Pending[Any]]) -> Pending[Any] | None:
    """The first that is found to be wrong: what else the request asks for needn't be awaited."""
    return next((each for each in pending if each.ready and each.failed), None)


def _too_slow(pending: Seq[Pending[Any]], compiler: Compiler | None) -> GrammarError:
    assert compiler is not None
    slowest = max(pending, key=lambda each: each.seconds)
    return GrammarError(
        f"The {len(pending)} patterns and grammars of the request take longer than {compiler.limits.seconds:g} seconds "
        f"to compile together; one {slowest.kind} takes {slowest.seconds:.1f} of them.",
        hint="Ask for fewer, or smaller ones.",
        param=slowest.kind,
    )


def _placed(problem: GrammarError, sequence: Sequence) -> GrammarError:
    """With the name of the request's field in which the grammar was given."""
    generation = sequence.generation
    given = None if generation is None else generation.params.constraint
    if given is None or problem.param == STOP:
        return problem
    param = given.field or problem.param or given.grammar.kind
    return GrammarError(problem.message, hint=problem.hint, param=param)


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
