"""One output under a grammar: which tokens it may take next, and those that it takes without being asked.

Wraps a Matcher of runtime/grammar; knows no rows, pages or replies. Owned by a Generation. Whatever a matcher raises is
the matter of its own request: the output is broken then, and those beside it go on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from palmette.runtime.errors import InternalError, PalmetteError
from palmette.runtime.grammar.asked import AskedMatcher
from palmette.runtime.grammar.automaton.jump import sole_token
from palmette.runtime.grammar.automaton.masks import fill_masks
from palmette.runtime.grammar.protocol import Grammar, Judges, Mask, Matcher, mask_words
from palmette.runtime.messages.grammar import Constraint
from palmette.runtime.vocabulary import Vocabulary

UNKNOWN = 256  # tokens, from which on an end that wasn't found is taken to be within reach

log = logging.getLogger(__name__)


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
        self._failure: InternalError | None = None
        self.words = mask_words(vocabulary.size)

    @property
    def sound(self) -> bool:
        """Its matcher has raised nothing yet."""
        return self._failure is None

    @property
    def broken(self) -> PalmetteError | None:
        """Why its matcher can't go on. It allows no token any more."""
        return self._failure or self.matcher.broken

    def ends(self, *, full: bool) -> bool:
        """Whether the output ends here. `full`: no more tokens may come: what is to be complete ends then if it is."""
        try:
            return self._ends(full=full)
        except Exception as fault:
            self._fail(fault)
            return False

    def fault(self, output: Sequence[int]) -> str | None:
        """What a grammar that could not hold the output to all that was wanted says of the whole of it."""
        if self._judge is None or not self.ends(full=True):
            return None
        text = b"".join(self._vocabulary.pieces[token] for token in output).decode(errors="replace")
        try:
            return self._judge.fault_of(text)
        except Exception as fault:
            self._fail(fault)
            return None

    def fill_mask(self, into: Mask) -> None:
        """See Matcher; nothing is allowed where it fails."""
        try:
            if self.sound:
                self.matcher.fill_mask(into)
        except Exception as fault:
            self._fail(fault)
        if not self.sound:
            into.fill(0)

    def take(self, token: int, room: int) -> list[int] | None:
        """What the output goes on with, now that `token` was drawn: at most `room` tokens, which are accepted.

        None of them where it had better end before the token. Returns None if the grammar doesn't allow it, or fails.
        """
        try:
            return self._take(token, room)
        except Exception as fault:
            self._fail(fault)
            return None

    def forced(self, room: int) -> list[int]:
        """At most `room` tokens that follow whatever the model would say; they are accepted."""
        try:
            return self._forced(room)
        except Exception as fault:
            self._fail(fault)
            return []

    @property
    def _over(self) -> bool:
        """It has ended, or nothing may follow but the end, or the end was taken so as to reach it."""
        return self._was_closed or self.matcher.ended or self.matcher.complete

    def _ends(self, *, full: bool) -> bool:
        return self._over or (full and self._complete and (self.matcher.ended or self.matcher.may_end))

    def _fail(self, fault: Exception) -> None:
        log.error("a grammar failed", exc_info=fault)
        self._failure = InternalError(
            f"The grammar failed: {type(fault).__name__}: {fault}.",
            hint="Other requests go on. Please report it with the engine's log.",
        )

    def _take(self, token: int, room: int) -> list[int] | None:
        if not self.matcher.accept(token):
            return None
        if not self._complete or self._closes_within(room - 1):
            return [token, *self._forced(room - 1)]
        if self._way is None or len(self._way) > room:  # it could not be closed before, either
            self._way = None
            return [token, *self._forced(room - 1)]
        self.matcher.rollback(1)
        self._was_closed = True
        return self._follow(self._way)

    def _forced(self, room: int) -> list[int]:
        taken: list[int] = []
        if self._jump == "bytes":
            while run := self.matcher.forced()[: room - len(taken)]:  # long runs come in parts
                taken += self._follow(run)
        elif self._jump == "token":
            mask = np.empty(self.words, dtype=np.uint32)
            while len(taken) < room and not self._over:
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


def fill_all(constrained: Sequence[Constrained], into: npt.NDArray[np.uint32]) -> None:
    """The masks of a batch: into[i] (uint32[n, words]) of constrained[i]."""
    try:
        together = all(each.sound for each in constrained)
        if together:
            fill_masks([each.matcher for each in constrained], into)
    except Exception:
        together = False
    if not together:  # one by one it is seen whose fault it is
        for each, mask in zip(constrained, into, strict=True):
            each.fill_mask(mask)
