"""What every tokenizer offers, whatever file it was made from. Called by the frontend.

A tokenizer adds nothing of its own: no BOS, no dummy prefix space, so that the tokens of a text can be appended
to any branch. decode is the concatenation of the tokens' bytes (vocabulary.py), so it needs no tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.vocabulary import Vocabulary


class SpecialTokens(msgspec.Struct, frozen=True, kw_only=True):
    """What a tokenizer's files say beside its vocabulary."""

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()  # the first is the one that templates call eos_token
    add_bos: bool = False  # the model was trained with BOS before every text
    chat_template: str | None = None


class Tokenizer(Protocol):
    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends a text, a turn or a message, the tokenizer's own eos_token first."""
        ...

    @property
    def bos_token(self) -> str:
        """Its written form, as chat templates want it; empty where there is none."""
        ...

    @property
    def eos_token(self) -> str: ...

    @property
    def chat_template(self) -> str | None:
        """The model's own template, in jinja."""
        ...

    def encode(self, text: str, *, special: bool, start_of_text: bool = False) -> list[int]:
        """Token ids of `text`.

        special: written special tokens become those tokens (text that a template made); False: they are plain
        text (what a user wrote). start_of_text: also add the prefix space of tokenizers that were trained
        with one. Raises InvalidRequest for text that isn't valid Unicode.
        """
        ...

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `tokens`; bytes that are no UTF-8 become U+FFFD."""
        ...


class VocabularyTokenizer:
    """What follows from the vocabulary alone; the base of both kinds of tokenizer."""

    def __init__(self, vocabulary: Vocabulary, special: SpecialTokens) -> None:
        self.vocabulary = vocabulary
        self.bos_id = special.bos_id
        self.eos_ids = special.eos_ids
        self.chat_template = special.chat_template
        self.bos_token = _written(vocabulary, special.bos_id)
        self.eos_token = _written(vocabulary, special.eos_ids[0] if special.eos_ids else None)

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        piece = self.vocabulary.piece
        return b"".join([piece(token, skip_special=skip_special) for token in tokens]).decode(errors="replace")


def check_unicode(text: str) -> None:
    """Raises InvalidRequest for half a surrogate pair, which no tokenizer can encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"The text is not valid Unicode: {error.reason} at character {error.start}.",
            hint="Remove the character, or decode the text with errors='replace' first.",
        ) from error


def _written(vocabulary: Vocabulary, token: int | None) -> str:
    if token is None:
        return ""
    return vocabulary.piece(token, skip_special=False).decode(errors="replace")
