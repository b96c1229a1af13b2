"""One output under a grammar: which tokens it may take next, and those that it takes without being asked.

Wraps a Matcher of runtime/grammar; knows no rows, pages or replies. Owned by a Generation.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from itertools import groupby

import numpy as np

from palmette.runtime.errors import InternalError
from palmette.runtime.grammar.jump import sole_token
from palmette.runtime.grammar.protocol import FillsMany, Matcher, mask_words
from palmette.runtime.messages.grammar import Jump
from palmette.runtime.plan import UInt32


class Constrained:
    """`vocabulary`: the number of token ids."""

    def __init__(self, matcher: Matcher, jump: Jump, vocabulary: int) -> None:
        self.matcher = matcher
        self._jump = jump
        self._words = mask_words(vocabulary)

    @property
    def complete(self) -> bool:
        """Nothing may follow but the end."""
        return self.matcher.complete

    def accept(self, token: int) -> None:
        """Goes on with a sampled token. Raises InternalError where the grammar doesn't allow it."""
        if not self.matcher.accept(token):
            raise InternalError(f"Token {token} was drawn, which the grammar does not allow here.")

    def forced(self, room: int) -> list[int]:
        """At most `room` tokens that follow whatever the model would say; they are accepted."""
        taken: list[int] = []
        if self._jump == "bytes":
            for token in self.matcher.forced()[:room]:
                self.accept(token)
                taken.append(token)
        elif self._jump == "token":
            mask = np.empty(self._words, dtype=np.uint32)
            while len(taken) < room and not self.matcher.complete:
                self.matcher.fill_mask(mask)
                sole = sole_token(mask)
                if sole is None:
                    break
                self.accept(sole)
                taken.append(sole)
        return taken


def masks_of(outputs: Seq[Constrained], words: int) -> UInt32:
    """[outputs, words]: what each may take next. Neighbours whose matchers can are filled in one call."""
    masks = np.empty((len(outputs), words), dtype=np.uint32)
    rows = enumerate(output.matcher for output in outputs)
    for kind, run in groupby(rows, key=lambda row: type(row[1])):
        members = list(run)
        if issubclass(kind, FillsMany):
            kind.fill_many([matcher for _, matcher in members], masks, [row for row, _ in members])
        else:
            for row, matcher in members:
                matcher.fill_mask(masks[row])
    return masks
