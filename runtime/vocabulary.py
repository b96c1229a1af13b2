"""Token id → bytes, and the special ids, without a tokenizer. The engine decides stops with it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from palmette.runtime.errors import InvalidRequest


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

    def piece(self, token: int, *, skip_special: bool = True) -> bytes:
        """The bytes of one token; those of a special token's written form where it isn't to be skipped."""
        if not 0 <= token < len(self.pieces):
            raise InvalidRequest(
                f"Token {token!r} is not in the vocabulary, which has ids 0 to {len(self.pieces) - 1}.",
                hint="Use ids that this model's tokenizer gave.",
            )
        if not skip_special and token in self.special_pieces:
            return self.special_pieces[token].encode()
        return self.pieces[token]

    def sized(self, size: int) -> Vocabulary:
        """The same with `size` ids, for a model of so many embeddings: empty pieces where it has more than tokens,
        tokens left out where it has fewer (those can't be computed)."""
        if size >= len(self.pieces):
            return msgspec.structs.replace(self, pieces=self.pieces + (b"",) * (size - len(self.pieces)))
        return Vocabulary(
            self.pieces[:size],
            {token: text for token, text in self.special_pieces.items() if token < size},
            tuple(token for token in self.eos_ids if token < size),
        )
