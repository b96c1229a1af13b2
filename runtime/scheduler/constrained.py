"""One output under a grammar: which tokens it may take next, and those that it takes without being asked.

Wraps a Matcher of runtime/grammar; knows no rows, pages or replies. Owned by a Generation.
"""

from __future__ import annotations

import numpy as np

from palmette.runtime.grammar.jump import sole_token
from palmette.runtime.grammar.protocol import Matcher, mask_words
from palmette.runtime.messages.grammar import Jump


class Constrained:
    """`vocabulary`: the number of token ids."""

    def __init__(self, matcher: Matcher, jump: Jump, vocabulary: int) -> None:
        self.matcher = matcher
        self._jump = jump
        self.words = mask_words(vocabulary)

    @property
    def over(self) -> bool:
        """It has ended, or nothing may follow but the end."""
        return self.matcher.ended or self.matcher.complete

    def accept(self, token: int) -> bool:
        """Goes on with a sampled token; False where the grammar doesn't allow it."""
        return self.matcher.accept(token)

    def forced(self, room: int) -> list[int]:
        """At most `room` tokens that follow whatever the model would say; they are accepted."""
        taken: list[int] = []
        if self._jump == "bytes":
            while run := self.matcher.forced()[: room - len(taken)]:  # long runs come in parts
                for token in run:
                    self._follow(token)
                taken += run
        elif self._jump == "token":
            mask = np.empty(self.words, dtype=np.uint32)
            while len(taken) < room and not self.over:
                self.matcher.fill_mask(mask)
                sole = sole_token(mask)
                if sole is None:
                    break
                self._follow(sole)
                taken.append(sole)
        return taken

    def _follow(self, token: int) -> None:
        followed = self.matcher.accept(token)
        assert followed, f"forced token {token} is allowed"
