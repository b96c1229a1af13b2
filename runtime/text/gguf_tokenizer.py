"""The tokenizer in a GGUF file's metadata: byte-level BPE ("gpt2") and SentencePiece BPE ("llama").

Called by load.py. A vocabulary of 49,152 builds in a tenth of a second, so nothing derived from it is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from palmette.runtime.errors import DamagedModel, Unsupported
from palmette.runtime.text.byte_level import (
    LibraryTokenizer,
    byte_level_pieces,
    sentencepiece_piece,
    vocabulary,
)
from palmette.runtime.text.sentence_piece import PieceType, SentencePieceTokenizer, model_file
from palmette.runtime.text.tokenizer import SpecialTokens, Tokenizer

_AT = "tokenizer.ggml."
_REFETCH = "The file is damaged or was converted without it: convert or fetch it again."

# Control tokens that end a turn in the models that have them; GGUF files often name only one.
END_OF_TURN = frozenset({
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|eot|>",
    "<end_of_turn>", "</s>",
})  # fmt: skip

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS_AND_SPACES = r"[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = f"{_CONTRACTIONS}|" + _WORDS_AND_SPACES % r"\p{N}{1,3}"
_QWEN2 = f"{_CONTRACTIONS}|" + _WORDS_AND_SPACES % r"\p{N}"


def gguf_tokenizer(metadata: dict[str, Any], path: Path, chat_template: str | None = None) -> Tokenizer:
    """Raises DamagedModel for metadata that doesn't hold together, Unsupported for a kind that isn't here."""
    read = _TokenizerMetadata(metadata, path)
    kind = metadata.get(_AT + "model")
    if kind == "gpt2":
        return _byte_level(read, chat_template)
    if kind == "llama":
        return _sentence_piece(read, chat_template)
    raise Unsupported(
        f"{str(path)!r} has a tokenizer of the kind {kind!r}.",
        hint="Supported in GGUF files: 'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE).",
    )


class _TokenizerMetadata:
    """The checked metadata both kinds share."""

    def __init__(self, metadata: dict[str, Any], path: Path) -> None:
        self.metadata = metadata
        self.path = path
        self.tokens: list[str] = self.listed("tokens", str)
        if not self.tokens:
            raise self.damaged("tokens", "is empty")
        self.types: list[int] = self.listed("token_type", int, len(self.tokens), PieceType.NORMAL)
        self.control = {at: self.tokens[at] for at, kind in enumerate(self.types) if kind == PieceType.CONTROL}

    def damaged(self, key: str, what: str) -> DamagedModel:
        return DamagedModel(f"{str(self.path)!r}: {_AT + key} {what}.", hint=_REFETCH)

    def listed(self, key: str, kind: type, length: int | None = None, default: Any = None) -> list[Any]:
        values = self.metadata.get(_AT + key)
        if values is None and default is not None and length is not None:
            return [default] * length
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise self.damaged(key, f"is not a list of {kind.__name__}")
        if length is not None and len(values) != length:
            raise self.damaged(key, f"has {len(values)} entries for {length} tokens")
        return values

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.metadata.get(_AT + key, default))

    def id(self, key: str) -> int | None:
        value = self.metadata.get(_AT + key)
        if value is None or value == 0xFFFFFFFF:  # how converters write "none"
            return None
        if not isinstance(value, int) or not 0 <= value < len(self.tokens):
            raise self.damaged(key, f"is {value!r}; ids go from 0 to {len(self.tokens) - 1}")
        return value

    def special(self, chat_template: str | None, *, add_bos: bool) -> SpecialTokens:
        named = [self.id(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
        by_text = [token for token, text in self.control.items() if text in END_OF_TURN]
        own = self.metadata.get("tokenizer.chat_template")
        return SpecialTokens(
            bos_id=self.id("bos_token_id"),
            eos_ids=tuple(dict.fromkeys([token for token in named if token is not None] + by_text)),
            add_bos=self.flag("add_bos_token", add_bos),
            chat_template=chat_template or (own if isinstance(own, str) else None),
        )


def _byte_level(read: _TokenizerMetadata, chat_template: str | None) -> LibraryTokenizer:
    pre = read.metadata.get(_AT + "pre")
    build = _PRE_TOKENIZERS.get(pre) if isinstance(pre, str) else None
    if build is None:
        raise Unsupported(
            f"{str(read.path)!r} splits text in the way {pre!r} before its BPE.",
            hint=f"Supported: {', '.join(_PRE_TOKENIZERS)}. Another split would give wrong tokens.",
        )
    ids = {text: at for at, text in enumerate(read.tokens)}
    if len(ids) != len(read.tokens):
        raise read.damaged("tokens", "has the same token twice")
    ignore_merges = pre in _WHOLE_WORDS_FIRST
    try:
        # A merge's first half is never empty, so the space that parts the halves isn't its first character.
        merges = [(merge[: (cut := merge.index(" ", 1))], merge[cut + 1 :]) for merge in read.listed("merges", str)]
        library = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=ignore_merges))
    except Exception as error:  # the library raises plain Exception
        raise read.damaged("merges", f"doesn't fit the vocabulary ({error})") from error
    library.pre_tokenizer = build()
    if pre in _NORMALISED:
        library.normalizer = normalizers.NFC()
    defined = [at for at, kind in enumerate(read.types) if kind == PieceType.USER_DEFINED]
    library.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in read.control.values()])
    library.add_tokens([AddedToken(read.tokens[at], special=False, normalized=False) for at in defined])
    pieces = byte_level_pieces(read.tokens)
    for at in defined:
        pieces[at] = read.tokens[at].encode()
    special = read.special(chat_template, add_bos=pre in _WHOLE_WORDS_FIRST)
    return LibraryTokenizer(library, vocabulary(pieces, read.control, special), special)


def _sentence_piece(read: _TokenizerMetadata, chat_template: str | None) -> SentencePieceTokenizer:
    unknown = read.id("unknown_token_id") or 0
    types = [kind if kind in PieceType.__members__.values() else PieceType.NORMAL for kind in read.types]
    charsmap = read.metadata.get(_AT + "precompiled_charsmap") or []
    model = model_file(
        read.tokens,
        read.listed("scores", float, len(read.tokens)),
        types,
        unknown_id=unknown,
        charsmap=bytes(byte & 0xFF for byte in charsmap),
        remove_extra_whitespaces=read.flag("remove_extra_whitespaces", False),
    )
    pieces = [
        text.encode() if kind == PieceType.USER_DEFINED else sentencepiece_piece(text)
        for text, kind in zip(read.tokens, types, strict=True)
    ]
    written = {**read.control, unknown: read.tokens[unknown]}
    special = read.special(chat_template, add_bos=True)
    return SentencePieceTokenizer(
        model,
        vocabulary(pieces, written, special),
        special,
        written={text: at for at, text in written.items()},
        dummy_prefix=read.flag("add_space_prefix", True),
        source=repr(str(read.path)),
    )


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _pattern(pattern: str) -> Any:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# tokenizer.ggml.pre → the split before BPE
_PRE_TOKENIZERS: dict[str, Callable[[], Any]] = {
    "gpt-2": _gpt2,
    "smollm": _single_digits,
    "starcoder": _single_digits,
    "refact": _single_digits,
    "command-r": _single_digits,
    "llama-bpe": lambda: _pattern(_LLAMA3),
    "llama3": lambda: _pattern(_LLAMA3),
    "llama-v3": lambda: _pattern(_LLAMA3),
    "qwen2": lambda: _pattern(_QWEN2),
}
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama3", "llama-v3"})  # a word of the vocabulary skips the merges
_NORMALISED = frozenset({"qwen2"})
