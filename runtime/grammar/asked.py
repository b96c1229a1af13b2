"""Forced tokens that the model is asked for all the same, so that they have log-probabilities.

The tokens are those that jumping ahead would take; each is drawn under a mask that leaves it alone. Made by the
scheduler for Constraint.forced_logprobs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.protocol import Mask, Matcher


class AskedMatcher:
    """A Matcher. See the protocol. It also accepts what its grammar allows and its mask doesn't: ways to an end."""

    def __init__(self, inner: Matcher) -> None:
        self._inner = inner
        self._run: Sequence[int] = inner.forced()  # forced tokens that weren't drawn yet

    def fill_mask(self, into: Mask) -> None:
        if not self._run:
            self._inner.fill_mask(into)
            return
        into.fill(0)
        into[self._run[0] >> 5] = np.uint32(1 << (self._run[0] & 31))

    def accept(self, token: int) -> bool:
        if not self._inner.accept(token):
            return False
        self._run = self._run[1:] if self._run and self._run[0] == token else ()
        if not self._run:
            self._run = self._inner.forced()
        return True

    def forced_bytes(self) -> bytes:
        return self._inner.forced_bytes()

    def forced(self) -> list[int]:
        return self._inner.forced()

    def closing(self) -> Sequence[int] | None:
        return self._inner.closing()

    def rollback(self, count: int) -> None:
        self._inner.rollback(count)
        if count:
            self._run = self._inner.forced()

    def copy(self) -> AskedMatcher:
        made = AskedMatcher(self._inner.copy())
        made._run = self._run
        return made

    @property
    def may_end(self) -> bool:
        return self._inner.may_end

    @property
    def complete(self) -> bool:
        return self._inner.complete

    @property
    def ended(self) -> bool:
        return self._inner.ended

    @property
    def broken(self) -> GrammarError | None:
        return self._inner.broken
