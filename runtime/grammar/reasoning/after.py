"""A grammar that begins after the model has thought: any text up to an end marker, then what another grammar allows.

The marker is a special token of the vocabulary (`</think>` of many models) or plain text. Until it has come the output
can't end. With a begin marker, which the model writes itself, there may be no reasoning at all (maybe.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.closing import spell
from palmette.runtime.grammar.protocol import (
    Explanation,
    Grammar,
    GrammarSource,
    Limits,
    Mask,
    Matcher,
    TokenSpace,
    check_count,
    mask_words,
)
from palmette.runtime.grammar.reasoning.maybe import MaybeReasoning


class ReasoningSource(msgspec.Struct, frozen=True, kw_only=True):
    """`grammar`: what holds after `end`. `begin`: the reasoning begins with it, or there is none; without it the
    reasoning has begun."""

    grammar: GrammarSource
    end: str = "</think>"
    begin: str | None = None


class _FreeText:
    """Masks of the text before the marker: tokens in which the marker ends must end with it.

    A state is how many bytes of the marker the text ends with.
    """

    def __init__(self, space: TokenSpace, end: str) -> None:
        vocabulary = space.vocabulary
        self.end = end.encode()
        self.pieces = vocabulary.pieces
        self._space = space
        self.closing_tokens = frozenset(token for token, text in vocabulary.special_pieces.items() if text == end)
        self._masks: dict[int, Mask] = {}

    def mask(self, state: int) -> Mask:
        found = self._masks.get(state)
        if found is None:
            head = self.end[:state]
            allowed = np.zeros(mask_words(len(self.pieces)) * 32, dtype=np.uint8)
            for token, piece in enumerate(self.pieces):
                if piece:
                    at = (head + piece).find(self.end)
                    allowed[token] = at < 0 or at + len(self.end) == state + len(piece)
            allowed[list(self.closing_tokens)] = 1
            found = np.packbits(allowed, bitorder="little").view(np.uint32)
            self._masks[state] = found
        return found

    def allows(self, state: int, token: int) -> bool:
        mask = self.mask(state)
        return 0 <= token < len(self.pieces) and bool(mask[token >> 5] >> (token & 31) & 1)

    def closing(self, state: int) -> list[int] | None:
        """Tokens that complete the marker."""
        if self.closing_tokens:
            return [min(self.closing_tokens)]
        return spell(self.end[state:], self._space, masks_of(self._space).trie)

    def after(self, state: int, token: int) -> int:
        """The next state; the marker's length where it is complete."""
        if token in self.closing_tokens:
            return len(self.end)
        text = self.end[:state] + self.pieces[token]
        for length in range(min(len(self.end), len(text)), 0, -1):
            if text.endswith(self.end[:length]):
                return length
        return 0


class AfterReasoningMatcher:
    """A Matcher. See the protocol."""

    def __init__(self, free: _FreeText, inner: Matcher) -> None:
        self._free = free
        self._inner = inner
        self._states = [0]  # one a token before the marker's end, and the start
        self._after = 0  # tokens accepted by the inner matcher

    @property
    def thinking(self) -> bool:
        return self._states[-1] < len(self._free.end)

    def fill_mask(self, into: Mask) -> None:
        if self.thinking:
            into[:] = self._free.mask(self._states[-1])
        else:
            self._inner.fill_mask(into)

    def accept(self, token: int) -> bool:
        if not self.thinking:
            accepted = self._inner.accept(token)
            self._after += accepted
            return accepted
        if not self._free.allows(self._states[-1], token):
            return False
        self._states.append(self._free.after(self._states[-1], token))
        return True

    def forced_bytes(self) -> bytes:
        return b"" if self.thinking else self._inner.forced_bytes()

    def forced(self) -> list[int]:
        return [] if self.thinking else self._inner.forced()

    def closing(self) -> Sequence[int] | None:
        inner = self._inner.closing()
        if not self.thinking or inner is None:
            return inner
        marker = self._free.closing(self._states[-1])
        return None if marker is None else [*marker, *inner]

    def rollback(self, count: int) -> None:
        check_count(count, self._after + len(self._states) - 1)
        inner = min(count, self._after)
        if inner:
            self._inner.rollback(inner)
            self._after -= inner
        if count > inner:
            del self._states[len(self._states) - (count - inner) :]

    def copy(self) -> AfterReasoningMatcher:
        made = AfterReasoningMatcher(self._free, self._inner.copy())
        made._states, made._after = list(self._states), self._after
        return made

    @property
    def may_end(self) -> bool:
        return not self.thinking and self._inner.may_end

    @property
    def complete(self) -> bool:
        return not self.thinking and self._inner.complete

    @property
    def ended(self) -> bool:
        return not self.thinking and self._inner.ended

    @property
    def broken(self) -> GrammarError | None:
        return self._inner.broken


class AfterReasoning:
    """A Grammar. See the protocol."""

    def __init__(self, source: GrammarSource, inner: Grammar, end: str, space: TokenSpace) -> None:
        if not end:
            raise GrammarError("The end of the reasoning is an empty text.", hint="Such as '</think>'.", param="end")
        self._source = source
        self._end = end
        self._free = _FreeText(space, end)
        self.inner = inner

    @property
    def source(self) -> GrammarSource:
        return self._source

    def matcher(self) -> AfterReasoningMatcher:
        return AfterReasoningMatcher(self._free, self.inner.matcher())

    def accepts(self, text: str) -> bool:
        _, found, rest = text.partition(self._end)
        return bool(found) and self.inner.accepts(rest)

    def explain(self, text: str) -> Explanation:
        before, found, rest = text.partition(self._end)
        if not found:
            return Explanation(
                matches=False,
                position=len(text),
                possible=f"any text, then {self._end!r}",
                message=f"The reasoning doesn't end: {self._end!r} is missing.",
            )
        explained = self.inner.explain(rest)
        return msgspec.structs.replace(explained, position=explained.position + len(before) + len(found))


def build(
    source: GrammarSource, space: TokenSpace, limits: Limits, build_inner: Callable[..., Grammar]
) -> AfterReasoning | MaybeReasoning:
    """The kind "after_reasoning": the source is a ReasoningSource in JSON."""
    try:
        given = msgspec.json.decode(source.text, type=ReasoningSource)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GrammarError(
            f"The grammar after reasoning is not as it should be: {error}.",
            hint='It is {"grammar": {"kind": …, "text": …}, "end": "</think>"}.',
            param="after_reasoning",
        ) from None
    if given.grammar.kind == "after_reasoning":
        raise GrammarError("Reasoning within reasoning.", hint="Once is enough.", param="after_reasoning")
    inner = build_inner(given.grammar, space, limits)
    after = AfterReasoning(source, inner, given.end, space)
    return after if given.begin is None else MaybeReasoning(after, inner, given.begin, space)
