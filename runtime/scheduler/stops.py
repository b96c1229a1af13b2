"""Where an output ends: token ids and strings, decided on bytes, so that nothing depends on how the text is sent.

Knows token bytes through the vocabulary; knows nothing of requests or scheduling. Called once a sampled token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from palmette.runtime.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Stop:
    """The output's first `kept_tokens` tokens lie wholly before the stop; `kept_bytes` follow them."""

    matched: str | int
    kept_tokens: int
    kept_bytes: bytes


class StopChecker:
    """Watches one output. Strings are searched in the bytes of the output, special tokens left out."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        strings: Sequence[str] = (),
        token_ids: Collection[int] = (),
        min_tokens: int = 0,
    ) -> None:
        self._vocabulary = vocabulary
        self._strings = [(string, string.encode()) for string in strings]
        self._longest = max((len(pattern) for _, pattern in self._strings), default=0)
        self._token_ids = frozenset(token_ids)
        self._min_tokens = min_tokens
        self._text = bytearray()
        self._ends: list[int] = []  # length of the text behind each token; kept only where strings are watched

    def accept(self, token: int, count: int) -> Stop | None:
        """`token` is the `count`-th output token (from 1). The stop it completes, or None."""
        before = len(self._text)
        if self._strings:
            self._text += self._vocabulary.pieces[token]
            self._ends.append(len(self._text))
        if count < self._min_tokens:
            return None
        if token in self._token_ids:
            return Stop(token, count - 1, b"")
        return self._find_string(before) if self._strings else None

    def _find_string(self, before: int) -> Stop | None:
        """The earliest match that ends in the bytes after `before`; at one place the longest string."""
        begin = max(0, before - self._longest + 1)
        found: tuple[int, int, str] | None = None
        for string, pattern in self._strings:
            at = self._text.find(pattern, max(begin, before - len(pattern) + 1))
            if at >= 0 and (found is None or (at, -len(pattern)) < found[:2]):
                found = (at, -len(pattern), string)
        if found is None:
            return None
        at, _, string = found
        kept = 0
        start_of_next = 0
        for end in self._ends:
            if end > at:
                break
            kept += 1
            start_of_next = end
        return Stop(string, kept, bytes(self._text[start_of_next:at]))
