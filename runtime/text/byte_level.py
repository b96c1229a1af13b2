"""A tokenizer that the `tokenizers` library runs: byte-level BPE, or SentencePiece-like (tokenizer.json).

Called by the builders (gguf_tokenizer, folder_tokenizer), which give it the library's object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tokenizers

from palmette.runtime.text.tokenizer import SpecialTokens, VocabularyTokenizer, check_unicode
from palmette.runtime.vocabulary import Vocabulary


class LibraryTokenizer(VocabularyTokenizer):
    """A Tokenizer. `dummy_prefix`: the model was trained with a space before a text."""

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        vocabulary: Vocabulary,
        special: SpecialTokens,
        *,
        dummy_prefix: bool = False,
    ) -> None:
        super().__init__(vocabulary, special)
        self._dummy_prefix = dummy_prefix
        # The library's switch for special tokens is state of the object: one object for each position, so that
        # several threads can encode at the same time.
        self._plain, self._special = library, _twin(library)
        self._plain.encode_special_tokens = True
        self._special.encode_special_tokens = False

    def encode(self, text: str, *, special: bool, start_of_text: bool = False) -> list[int]:
        check_unicode(text)
        if start_of_text and self._dummy_prefix and text:
            text = " " + text
        library = self._special if special else self._plain
        # A batch is encoded without the interpreter's lock; a single text keeps it to the end.
        encoded = library.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoded[0].ids
        return ids

    def to_json(self) -> str:
        """The text of a tokenizer.json that encodes as this does, for programs that read nothing else."""
        return str(self._plain.to_str())


def _twin(library: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Another object over the same model, which encodes the same."""
    twin = tokenizers.Tokenizer(library.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        value = getattr(library, part)
        if value is not None:
            setattr(twin, part, value)
    added = library.get_added_tokens_decoder()
    for token in (added[token_id] for token_id in sorted(added)):
        (twin.add_special_tokens if token.special else twin.add_tokens)([token])
    if twin.get_added_tokens_decoder() != added:  # ids that don't follow on one another
        return tokenizers.Tokenizer.from_str(library.to_str())
    return twin


def byte_alphabet() -> dict[str, int]:
    """The printable characters that byte-level BPE writes bytes as: character → byte.

    Printable Latin-1 stands for itself; the other 68 bytes take the characters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


def byte_level_pieces(tokens: Iterable[str]) -> list[bytes]:
    """The bytes of byte-level BPE tokens; a token with a character outside the alphabet stands for itself."""
    alphabet = byte_alphabet()
    table = {ord(character): chr(byte) for character, byte in alphabet.items()}
    known = frozenset(alphabet)
    return [token.translate(table).encode("latin-1") if known.issuperset(token) else token.encode() for token in tokens]


def sentencepiece_piece(token: str) -> bytes:
    """The bytes of a SentencePiece-like token: ▁ is a space, <0x0A> a byte."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            return token.encode()
    return token.replace("▁", " ").encode()


def vocabulary(pieces: list[bytes], written: Mapping[int, str], special: SpecialTokens) -> Vocabulary:
    """`written`: the special tokens' texts by id; their pieces become empty."""
    for token in written:
        pieces[token] = b""
    return Vocabulary(tuple(pieces), dict(written), special.eos_ids, special.bos_id, special.add_bos)
