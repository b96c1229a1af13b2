"""Token id → bytes, and the special ids, without a tokenizer. The engine decides stops with it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Vocabulary(msgspec.Struct, frozen=True):
    """`pieces[id]` are the bytes that token `id` adds to a text; special (control) tokens have b"".

    `special_pieces` gives the written form of special tokens, for `skip_special_tokens=False`.
    """

    pieces: tuple[bytes, ...]
    special_pieces: dict[int, str]
    eos_ids: tuple[int, ...]  # every id that ends a text or a turn
    bos_id: int | None = None
    add_bos: bool = False

    @property
    def size(self) -> int:
        return len(self.pieces)

    def text(self, tokens: Sequence[int]) -> bytes:
        """The bytes of `tokens`, special tokens left out."""
        pieces = self.pieces
        return b"".join([pieces[token] for token in tokens])
