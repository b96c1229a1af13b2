"""The matcher of one output whose grammar is llguidance's. What fails in there is that output's error, nobody else's.

Where the lexer that outputs share has come to its bounds it goes on with another. Made by grammar.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import thread_time

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.llg.closing import closes
from palmette.runtime.grammar.llg.refusals import refusal
from palmette.runtime.grammar.llg.start import Begun, Start
from palmette.runtime.grammar.llg.tokenizers import closer_of, filling
from palmette.runtime.grammar.protocol import Mask, TokenSpace, check_count, mask_words
from palmette.runtime.machine import usable_threads

SLOW = 0.05  # seconds of one mask, or of accepting one token, that others notice
PATIENCE = 1.0  # seconds of such after which an output is given up
SPECIAL = b"\xff"  # before the number of a special token, where llguidance tells it as bytes
FEW_THREADS, FEW_MASKS = 4, 32  # below either, waking threads costs more than they save (30 µs a mask)


class LlgMatcher:
    """A Matcher. See the protocol."""

    def __init__(self, start: Start, begun: Begun, space: TokenSpace) -> None:
        """`begun`: at the start of a text."""
        self._start = start
        self._begun = begun
        self._space = space
        self._eos_ids = tuple(space.vocabulary.eos_ids)
        self._words = mask_words(space.vocabulary.size)
        self._accepted: list[int] = []  # without EOS
        self._way: list[int] | None = None  # the last closing that was found
        self._ended = False
        self._slow = 0.0  # seconds of slow masks and tokens

    @property
    def inner(self) -> LLMatcher:
        """Where its lexer has come to its bounds another takes its place."""
        if self._begun.matcher.is_error():
            self._begun = self._start.again(self._begun, self._accepted) or self._begun
        return self._begun.matcher

    def fill_mask(self, into: Mask) -> None:
        if self._ended:
            into.fill(0)
            return
        while self.goes_on:
            inner, started = self.inner, thread_time()
            inner.unsafe_compute_mask_ptr(into.ctypes.data, 4 * self._words)
            self._note(thread_time() - started)
            into[self._words :] = 0
            if not inner.is_error():
                return
            if self.inner is inner:
                break
        into.fill(0)
        if not self._broke:
            for token in self._eos_ids:
                into[token >> 5] |= np.uint32(1 << (token & 31))

    @classmethod
    def fill_many(cls, matchers: Sequence[LlgMatcher], into: npt.NDArray[np.uint32], rows: Sequence[int]) -> None:
        """By several threads, where there are many, `into` is contiguous and its rows are masks of this vocabulary."""
        together: list[tuple[LLMatcher, int]] = []
        many = len(rows) >= FEW_MASKS and usable_threads() >= FEW_THREADS
        if many and into.flags.c_contiguous and into.shape[1] == matchers[0]._words:
            together = [(each.inner, row) for each, row in zip(matchers, rows, strict=True) if each.goes_on]
        if together:
            filling().unsafe_compute_mask_ptr(together, into.ctypes.data, into.strides[0], len(into))
        filled = {row for _, row in together}
        for matcher, row in zip(matchers, rows, strict=True):
            if row not in filled or matcher.broken:
                matcher.fill_mask(into[row])

    @property
    def goes_on(self) -> bool:
        """More than the end may come."""
        return not (self._ended or self._slow > PATIENCE or self.inner.is_stopped())

    @property
    def broken(self) -> GrammarError | None:
        """Why it can't go on: the text so far has more readings than may be followed. Then nothing is allowed."""
        if not self._broke:
            return None
        if self.inner.is_error():
            return refusal(self.inner.get_error(), "grammar")
        return GrammarError(
            f"The grammar takes too long to follow: masks and tokens of this text took more than {PATIENCE:g} s.",
            hint="It is too ambiguous or too large: texts have too many readings.",
        )

    @property
    def _broke(self) -> bool:
        return self._slow > PATIENCE or self.inner.is_error()

    def accept(self, token: int) -> bool:
        if self._ended:
            return False
        if token in self._eos_ids:
            self._ended = self.may_end
            return self._ended
        if not self.goes_on:
            return False
        inner, started = self.inner, thread_time()
        taken = inner.try_consume_tokens([token])
        if taken != 1 and inner.is_error() and self.inner is not inner:
            taken = self.inner.try_consume_tokens([token])
        self._note(thread_time() - started)
        if taken != 1:
            return False
        self._accepted.append(token)
        if self._way:
            self._way = self._way[1:] if self._way[0] == token else self._way
        return True

    def _note(self, seconds: float) -> None:
        """That a mask or a token took."""
        if seconds > SLOW:
            self._slow += seconds

    def forced_bytes(self) -> bytes:
        if not self.goes_on or self.inner.is_accepting():
            return b""
        return bytes(self.inner.compute_ff_bytes()).partition(SPECIAL)[0]

    def forced(self) -> list[int]:
        if not self.goes_on or self.inner.is_accepting():
            return []
        return list(self.inner.compute_ff_tokens())

    def closing(self) -> Sequence[int] | None:
        if self._broke:
            return None
        if self._ended or self.inner.is_accepting():
            return ()
        if self._way is None or not closes(self.inner, self._way):  # one that was found before often goes on to close
            self._way = closer_of(self._space).find(self.inner)
        return self._way

    def rollback(self, count: int) -> None:
        check_count(count, len(self._accepted) + self._ended)
        if count and self._ended:
            self._ended = False
            count -= 1
        if count:
            self._way = None
            self.inner.rollback(count)
            del self._accepted[-count:]

    def copy(self) -> LlgMatcher:
        begun = Begun(self.inner.deep_copy(), self._begun.age)
        made = LlgMatcher(self._start, begun, self._space)
        made._accepted, made._ended, made._way, made._slow = self._accepted.copy(), self._ended, self._way, self._slow
        return made

    @property
    def may_end(self) -> bool:
        return not self._ended and self.inner.is_accepting() and not self._broke

    @property
    def complete(self) -> bool:
        return self.may_end and self.inner.is_stopped()

    @property
    def ended(self) -> bool:
        return self._ended
