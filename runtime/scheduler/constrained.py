"""One output under a grammar: which tokens it may take next, and those that it takes without being asked.

Wraps a Matcher of runtime/grammar; knows no rows, pages or replies. Owned by a Generation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.asked import AskedMatcher
from palmette.runtime.grammar.jump import sole_token
from palmette.runtime.grammar.protocol import Grammar, Judges, Matcher, mask_words
from palmette.runtime.messages.grammar import Constraint
from palmette.runtime.vocabulary import Vocabulary

UNKNOWN = 256  # tokens, from which on an end that wasn't found is taken to be within reach


class Constrained:
    """An output at its beginning.

    With `complete` an end of the text stays within reach of the tokens that are left: a drawn token from which it
    would not be is replaced by a way to an end, the one that was known before it.
    """

    def __init__(self, grammar: Grammar, constraint: Constraint, vocabulary: Vocabulary) -> None:
        asks = constraint.forced_logprobs and constraint.jump == "bytes"
        self.matcher: Matcher = AskedMatcher(grammar.matcher()) if asks else grammar.matcher()
        self._judge = grammar if isinstance(grammar, Judges) else None
        self._vocabulary = vocabulary
        self._jump = "off" if asks else constraint.jump
        self._complete = constraint.complete
        self._way: Sequence[int] | None = self.matcher.closing() if constraint.complete else None
        self._was_closed = False
        self.words = mask_words(vocabulary.size)

    @property
    def over(self) -> bool:
        """It has ended, or nothing may follow but the end, or the end was taken so as to reach it."""
        return self._was_closed or self.matcher.ended or self.matcher.complete

    @property
    def broken(self) -> GrammarError | None:
        """Why its matcher can't go on. It allows no token any more."""
        return self.matcher.broken

    @property
    def closed(self) -> bool:
        """It was to be complete, and is: no more tokens are needed."""
        return self._complete and (self.matcher.ended or self.matcher.may_end)

    def fault(self, output: Sequence[int]) -> str | None:
        """What a grammar that could not hold the output to all that was wanted says of the whole of it."""
        if self._judge is None or not (self.over or self.closed):
            return None
        text = b"".join(self._vocabulary.pieces[token] for token in output).decode(errors="replace")
        return self._judge.fault_of(text)

    def take(self, token: int, room: int) -> list[int] | None:
        """What the output goes on with, now that `token` was drawn: at most `room` tokens, which are accepted.

        None of them where it had better end before the token. Returns None if the grammar doesn't allow it.
        """
        if not self.matcher.accept(token):
            return None
        if not self._complete or self._closes_within(room - 1):
            return [token, *self.forced(room - 1)]
        if self._way is None or len(self._way) > room:  # it could not be closed before, either
            self._way = None
            return [token, *self.forced(room - 1)]
        self.matcher.rollback(1)
        self._was_closed = True
        return self._follow(self._way)

    def forced(self, room: int) -> list[int]:
        """At most `room` tokens that follow whatever the model would say; they are accepted."""
        taken: list[int] = []
        if self._jump == "bytes":
            while run := self.matcher.forced()[: room - len(taken)]:  # long runs come in parts
                taken += self._follow(run)
        elif self._jump == "token":
            mask = np.empty(self.words, dtype=np.uint32)
            while len(taken) < room and not self.over:
                self.matcher.fill_mask(mask)
                sole = sole_token(mask)
                if sole is None:
                    break
                taken += self._follow([sole])
        closable = self._complete and self._way is not None and len(self._way) <= room
        if closable and taken and not self._closes_within(room - len(taken)):
            self.matcher.rollback(len(taken))  # the way to an end spells this text in fewer tokens
            return []
        return taken

    def _closes_within(self, room: int) -> bool:
        """Whether an end can be reached with `room` more tokens; if so the way there is kept."""
        way = () if self.matcher.ended else self.matcher.closing()
        if way is None:
            if room < UNKNOWN:
                return False
        elif len(way) > room:
            return False
        self._way = way
        return True

    def _follow(self, tokens: Sequence[int]) -> list[int]:
        """Accepts `tokens`, which are allowed; fewer where the matcher breaks, which then allows nothing more."""
        for count, token in enumerate(tokens):
            if not self.matcher.accept(token):
                assert self.broken is not None, f"forced token {token} is allowed"
                return list(tokens[:count])
        return list(tokens)
