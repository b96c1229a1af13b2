"""A grammar behind reasoning that the model may leave out: where the output begins with a begin marker it is what
after_reasoning allows behind that, else the grammar alone.

For models that open their reasoning themselves. The marker is a special token of the vocabulary or plain text. Made by
after_reasoning's builder.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.closing import spell
from palmette.runtime.grammar.protocol import (
    Explanation,
    Grammar,
    GrammarSource,
    Mask,
    Matcher,
    TokenSpace,
    check_count,
    mask_words,
)


class _Opening:
    """Which tokens spell the marker on. A state is how many of its bytes the output is."""

    def __init__(self, space: TokenSpace, begin: str) -> None:
        vocabulary = space.vocabulary
        self.begin = begin.encode()
        self.pieces = vocabulary.pieces
        self.tokens = frozenset(token for token, text in vocabulary.special_pieces.items() if text == begin)
        self._space = space
        self._masks: dict[int, Mask] = {}

    def mask(self, state: int) -> Mask:
        found = self._masks.get(state)
        if found is None:
            rest = self.begin[state:]
            allowed = np.zeros(mask_words(len(self.pieces)) * 32, dtype=np.uint8)
            for token, piece in enumerate(self.pieces):
                allowed[token] = bool(piece) and rest.startswith(piece)
            if state == 0:
                allowed[list(self.tokens)] = 1
            found = self._masks[state] = np.packbits(allowed, bitorder="little").view(np.uint32)
        return found

    def after(self, state: int, token: int) -> int | None:
        """The next state, the marker's length where it is complete; None for a token that spells something else."""
        if state == 0 and token in self.tokens:
            return len(self.begin)
        piece = self.pieces[token] if 0 <= token < len(self.pieces) else b""
        return state + len(piece) if piece and self.begin.startswith(piece, state) else None

    def closing(self, state: int) -> list[int] | None:
        if self.tokens and state == 0:
            return [min(self.tokens)]
        return spell(self.begin[state:], self._space, masks_of(self._space).trie)


class MaybeReasoningMatcher:
    """A Matcher. Until the output has shown which of the two it is, both go on."""

    def __init__(self, opening: _Opening, plain: Matcher, reasoned: Matcher) -> None:
        self._opening = opening
        self._plain = plain
        self._reasoned = reasoned
        self._state: list[int | None] = [0]  # of the marker, one a token; None: it isn't one
        self._follows = [True]  # whether the grammar alone allows it so far, one a token
        self._thinking = 0  # tokens accepted behind the marker

    @property
    def _marked(self) -> bool:
        return self._state[-1] == len(self._opening.begin)

    def fill_mask(self, into: Mask) -> None:
        if self._marked:
            self._reasoned.fill_mask(into)
            return
        state = self._state[-1]
        if self._follows[-1]:
            self._plain.fill_mask(into)
            if state is not None:
                into |= self._opening.mask(state)
        elif state is not None:
            into[:] = self._opening.mask(state)

    def accept(self, token: int) -> bool:
        if self._marked:
            accepted = self._reasoned.accept(token)
            self._thinking += accepted
            return accepted
        state = self._state[-1]
        marker = None if state is None else self._opening.after(state, token)
        follows = self._follows[-1] and self._plain.accept(token)
        if marker is None and not follows:
            return False
        self._state.append(marker)
        self._follows.append(follows)
        return True

    @property
    def _settled(self) -> Matcher | None:
        """The one that goes on, where only one does."""
        if self._marked:
            return self._reasoned
        return self._plain if self._state[-1] is None else None

    def forced_bytes(self) -> bytes:
        settled = self._settled
        return settled.forced_bytes() if settled is not None else b""

    def forced(self) -> list[int]:
        settled = self._settled
        return settled.forced() if settled is not None else []

    def closing(self) -> Sequence[int] | None:
        if self._marked:
            return self._reasoned.closing()
        if self._follows[-1]:
            return self._plain.closing()
        state = self._state[-1]
        assert state is not None
        rest, behind = self._opening.closing(state), self._reasoned.closing()
        return None if rest is None or behind is None else [*rest, *behind]

    def rollback(self, count: int) -> None:
        check_count(count, self._thinking + len(self._state) - 1)
        behind = min(count, self._thinking)
        if behind:
            self._reasoned.rollback(behind)
            self._thinking -= behind
        for _ in range(count - behind):
            self._state.pop()
            if self._follows.pop():
                self._plain.rollback(1)

    def copy(self) -> MaybeReasoningMatcher:
        made = MaybeReasoningMatcher(self._opening, self._plain.copy(), self._reasoned.copy())
        made._state, made._follows, made._thinking = list(self._state), list(self._follows), self._thinking
        return made

    @property
    def may_end(self) -> bool:
        return self._reasoned.may_end if self._marked else self._follows[-1] and self._plain.may_end

    @property
    def complete(self) -> bool:
        settled = self._settled
        return settled is not None and settled.complete

    @property
    def ended(self) -> bool:
        return self._reasoned.ended if self._marked else self._follows[-1] and self._plain.ended

    @property
    def broken(self) -> GrammarError | None:
        return self._reasoned.broken if self._marked else self._plain.broken if self._follows[-1] else None


class MaybeReasoning:
    """A Grammar. See the protocol."""

    def __init__(self, after: Grammar, inner: Grammar, begin: str, space: TokenSpace) -> None:
        """`after`: what may follow the marker; `inner`: what the output is without it."""
        if not begin:
            raise GrammarError(
                "The begin of the reasoning is an empty text.",
                hint="Such as '<think>', or leave it out.",
                param="begin",
            )
        self._after = after
        self.inner = inner
        self._begin = begin
        self._opening = _Opening(space, begin)

    @property
    def source(self) -> GrammarSource:
        return self._after.source

    def matcher(self) -> MaybeReasoningMatcher:
        return MaybeReasoningMatcher(self._opening, self.inner.matcher(), self._after.matcher())

    def accepts(self, text: str) -> bool:
        if text.startswith(self._begin) and self._after.accepts(text[len(self._begin) :]):
            return True
        return self.inner.accepts(text)

    def explain(self, text: str) -> Explanation:
        if not text.startswith(self._begin):
            return self.inner.explain(text)
        explained = self._after.explain(text[len(self._begin) :])
        return msgspec.structs.replace(explained, position=explained.position + len(self._begin))
