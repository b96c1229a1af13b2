"""Where an output ends: token ids, strings and patterns, decided on bytes, so that nothing depends on how the text is
sent.

Knows token bytes through the vocabulary; knows nothing of requests or scheduling. Called once a sampled token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from palmette.runtime.grammar.regex.stop_pattern import StopPattern, StopWatch
from palmette.runtime.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Stop:
    """The output's first `kept_tokens` tokens lie wholly before the stop; `kept_bytes` follow them."""

    matched: str | int
    kept_tokens: int
    kept_bytes: bytes


class _Match(NamedTuple):
    """The least is the one that ends an output: the first to begin, of those at one place the longest."""

    start: int
    minus_length: int
    stop: str


class StopChecker:
    """Watches one output. Strings and patterns are searched in the bytes of the output, special tokens left
    out."""

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
        self._token_ids = frozenset(token_ids)
        self._min_tokens = min_tokens
        self._text = bytearray()
        self._ends: list[int] = []  # length of the text behind each token; kept only where the text is watched
        self._watches: tuple[StopWatch, ...] = ()

    def watch(self, patterns: Iterable[StopPattern]) -> None:
        """Ends the output at a match of one of `patterns`, too. Before its first token."""
        self._watches = tuple(map(StopWatch, patterns))

    @property
    def held(self) -> int:
        """Bytes at the end of the text that may still become a pattern's match."""
        if not self._watches:
            return 0
        return max((watch.held(self._text) for watch in self._watches), default=0)

    def accept(self, token: int, count: int) -> Stop | None:
        """`token` is the `count`-th output token (from 1). The stop it completes, or None."""
        if not self._strings and not self._watches:
            return Stop(token, count - 1, b"") if token in self._token_ids and count >= self._min_tokens else None
        before = len(self._text)
        self._text += self._vocabulary.pieces[token]
        self._ends.append(len(self._text))
        matches = [
            _Match(span[0], span[0] - span[1], watch.pattern)
            for watch in self._watches
            if (span := watch.feed(self._text, before)) is not None
        ]
        if count < self._min_tokens:
            return None
        if token in self._token_ids:
            return Stop(token, count - 1, b"")
        matches += self._strings_from(before)
        return self._stop(min(matches)) if matches else None

    def _strings_from(self, before: int) -> Iterable[_Match]:
        """The strings that end in the bytes after `before`, each where it begins first."""
        for string, data in self._strings:
            at = self._text.find(data, max(0, before - len(data) + 1))
            if at >= 0:
                yield _Match(at, -len(data), string)

    def _stop(self, match: _Match) -> Stop:
        kept = 0
        start_of_next = 0
        for end in self._ends:
            if end > match.start:
                break
            kept += 1
            start_of_next = end
        return Stop(match.stop, kept, bytes(self._text[start_of_next : match.start]))
