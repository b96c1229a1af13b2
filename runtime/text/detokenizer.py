"""Tokens to text as they come. Called by the frontend, one for each stream.

For every chunking of the same tokens the concatenated text equals Tokenizer.decode of them all.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from palmette.runtime.vocabulary import Vocabulary


class Detokenizer:
    """Holds back the bytes of a character that isn't complete yet; nothing else."""

    def __init__(self, vocabulary: Vocabulary, *, skip_special: bool = True) -> None:
        self._vocabulary = vocabulary
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, tokens: Iterable[int], more: bytes = b"") -> str:
        """The text that `tokens`, then the bytes `more` (a stop's kept bytes), complete."""
        piece, skip = self._vocabulary.piece, self._skip_special
        return self._utf8.decode(b"".join([piece(token, skip_special=skip) for token in tokens]) + more)

    def flush(self) -> str:
        """What was held back, as U+FFFD; then as new."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text
