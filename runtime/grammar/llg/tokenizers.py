"""What llguidance knows of a vocabulary, and what all grammars over it share. Made once a vocabulary.

Called by the other modules here; knows no grammar.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from llguidance import LLExecutor, LLTokenizer, TokenizerWrapper

from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.llg.closing import Closer
from palmette.runtime.grammar.protocol import TokenSpace
from palmette.runtime.machine import usable_threads

BYTE_EOS = 256
FILLING_THREADS = 8  # at most, that fill the masks of a batch
_TEXT = r'[^"\\\x00-\x1F\x7F]'
SLICES = [r"[\x20\x0A\x0D\x09]+", *(f"{_TEXT}{{1,{most}}}" for most in (6, 10, 15, 22, 30)), f"{_TEXT}+"]
"""Sorts of tokens that llguidance looks at as one where a lexeme takes all of them: texts in strings, by their length,
so that what is left of a `maxLength` decides about few tokens one by one."""


class _Tokens:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, space: TokenSpace) -> None:
        vocabulary = space.vocabulary
        self.eos_token_id = vocabulary.eos_ids[0]
        special = set(vocabulary.special_pieces) | set(vocabulary.eos_ids)
        self.special_token_ids = sorted(special)
        self.tokens = [
            vocabulary.special_pieces.get(token, f"<|{token}|>").encode() if token in special else piece
            for token, piece in enumerate(vocabulary.pieces)
        ]
        self._space = space

    def __call__(self, text: bytes | str) -> list[int]:
        return self._space.encode(text.decode() if isinstance(text, bytes) else text)


class _Bytes:
    """A token for each byte, and an end: for questions about texts."""

    bos_token_id = None
    eos_token_id = BYTE_EOS
    special_token_ids = (BYTE_EOS,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<|end|>")

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def _tokenizer(tokens: Any, eos_ids: Sequence[int]) -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(tokens), n_vocab=len(tokens.tokens), eos_token=list(eos_ids), slices=SLICES)


@lru_cache(maxsize=1)
def byte_tokenizer() -> LLTokenizer:
    return _tokenizer(_Bytes(), [BYTE_EOS])


class LlgTokenizers:
    """One llguidance tokenizer (a trie of the vocabulary) for each TokenSpace, made when first needed."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[TokenSpace, LLTokenizer] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, space: TokenSpace) -> LLTokenizer:
        with self._lock:
            found = self._made.get(space)
            if found is None:
                found = self._made[space] = _tokenizer(_Tokens(space), space.vocabulary.eos_ids)
            return found


@lru_cache(maxsize=1)
def filling() -> LLExecutor:
    """The threads that fill the masks of a batch."""
    return LLExecutor(min(usable_threads(), FILLING_THREADS))


TOKENIZERS = LlgTokenizers()
_closers: WeakKeyDictionary[TokenSpace, Closer] = WeakKeyDictionary()


def closer_of(space: TokenSpace) -> Closer:
    """The search for ways to an end over a vocabulary, made when first needed."""
    found = _closers.get(space)
    if found is None:
        found = _closers[space] = Closer(space, masks_of(space).trie)
    return found


def make_ready(space: TokenSpace) -> None:
    """Makes what all grammars over a vocabulary share. Most of it holds the interpreter's lock."""
    TOKENIZERS.of(space)
    closer_of(space)
