"""A tokenizer that the `sentencepiece` library runs, and the model file it wants, written from a piece list.

Called by the builders (gguf_tokenizer, folder_tokenizer).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import sentencepiece

from palmette.runtime.errors import DamagedModel
from palmette.runtime.text.tokenizer import SpecialTokens, VocabularyTokenizer, check_unicode
from palmette.runtime.vocabulary import Vocabulary

_BPE = 2  # the trainer's model type
# A field that comes a second time in a protobuf message is merged: this turns any model's prefix space off.
_WITHOUT_PREFIX = b"\x1a\x02\x18\x00"


class PieceType(IntEnum):
    """The same numbers in SentencePiece model files and in GGUF's tokenizer.ggml.token_type."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class SentencePieceTokenizer(VocabularyTokenizer):
    """A Tokenizer over a SentencePiece model.

    `written`: special tokens by their text; `added`: tokens beyond the model that are parsed in any text.
    Raises DamagedModel where the library refuses the model.
    """

    def __init__(
        self,
        model: bytes,
        vocabulary: Vocabulary,
        special: SpecialTokens,
        *,
        written: Mapping[str, int],
        added: Mapping[str, int] | None = None,
        dummy_prefix: bool = True,
        source: str = "the tokenizer",
    ) -> None:
        super().__init__(vocabulary, special)
        self._processor = load_processor(model + _WITHOUT_PREFIX, source)
        self._dummy_prefix = dummy_prefix
        self._added = dict(added or {})
        self._all = {**self._added, **written}
        self._split_added = _splitter(self._added)
        self._split_all = _splitter(self._all)

    def encode(self, text: str, *, special: bool, start_of_text: bool = False) -> list[int]:
        check_unicode(text)
        if start_of_text and self._dummy_prefix and text:
            text = " " + text
        splitter, known = (self._split_all, self._all) if special else (self._split_added, self._added)
        if splitter is None:
            return self._encode_plain(text)
        ids: list[int] = []
        for at, part in enumerate(splitter.split(text)):
            if at % 2:
                ids.append(known[part])
            elif part:
                ids.extend(self._encode_plain(part))
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(text, out_type=int)
        return ids


def load_processor(model: bytes, source: str) -> sentencepiece.SentencePieceProcessor:
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except (RuntimeError, OSError) as error:
        raise DamagedModel(
            f"{source} is not a sound SentencePiece model: {error}", hint="Fetch or copy the model again."
        ) from error


def model_file(
    pieces: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    *,
    unknown_id: int = 0,
    charsmap: bytes = b"",
    remove_extra_whitespaces: bool = False,
) -> bytes:
    """A SentencePiece BPE model (protobuf) that encodes as these pieces and scores say."""
    kinds = [PieceType.UNKNOWN if index == unknown_id else kind for index, kind in enumerate(types)]
    entries = [
        _field(1, _field(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))
        for piece, score, kind in zip(pieces, scores, kinds, strict=True)
    ]
    byte_fallback = int(PieceType.BYTE in kinds)
    trainer = (
        _number(3, _BPE) + _number(4, len(pieces)) + _number(35, byte_fallback) + _number(40, unknown_id)
        + b"".join(_number(field, (1 << 64) - 1) for field in (41, 42, 43))  # no BOS, EOS, padding
    )  # fmt: skip
    normalizer = (
        _field(1, b"identity") + _field(2, charsmap) + _number(3, 1)
        + _number(4, int(remove_extra_whitespaces)) + _number(5, 1)
    )  # fmt: skip
    return b"".join(entries) + _field(2, trainer) + _field(3, normalizer)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _splitter(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None
